"""modelopt's own fake-quantized torch model of a format, in float32: with the weights and scales of a calibrated checkpoint, or,
where a format has no calibration, with those that modelopt makes of the model itself.

Weights are the checkpoint's, rounded as they are stored, since modelopt's model rounds them by another division than its export.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tensors import Checkpoint
from builder.quant.calibration import nvfp4_backend
from builder.quant.calibration.quiet import quiet

LARGEST = {"fp8": 448.0, "int8": 127.0, "nvfp4": 6.0 * 448.0}
"""What a row may reach to, in scales, by format of the weights."""
NARROW_INTEGER = 4
GROUP = 32
"""Of INT4 where nothing was calibrated."""


def float_model(model: Path) -> Any:
    """Give the torch model in float32."""
    found: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return found.eval()


def modelopt_model(model: Path, config: str, calibrated: Path | None) -> Any:
    """Give the torch model, ready to be run."""
    loaded = float_model(model)
    checkpoint = None if calibrated is None else open_checkpoint(str(calibrated))
    with quiet(), torch.inference_mode():
        import modelopt.torch.quantization as mtq  # noqa: PLC0415 (it warns of what it would do with a GPU)

        nvfp4_backend.register()
        rules = _rules(getattr(mtq, config))
        rules["algorithm"] = rules["algorithm"] if checkpoint is None else None
        mtq.quantize(loaded, rules)
        if checkpoint is None:
            mtq.fold_weight(loaded)
        else:
            _take(loaded, checkpoint)
    return loaded


def _rules(config: dict[str, Any]) -> dict[str, Any]:
    """Give rules that run without a GPU, and on all sizes of layers."""
    rules = copy.deepcopy(config)
    for rule in rules["quant_cfg"]:
        settings = rule.get("cfg") or []
        for each in settings if isinstance(settings, list) else [settings]:
            if each.get("num_bits") == (2, 1):
                each["backend"] = nvfp4_backend.BACKEND
            if each.get("num_bits") == NARROW_INTEGER:
                each["block_sizes"] = {**each["block_sizes"], -1: GROUP}
    return rules


def _take(model: Any, checkpoint: Checkpoint) -> None:
    """Put the weights and scales of a checkpoint into a model that has quantizers."""
    plain = {
        name: torch.from_numpy(tensor.read().copy())
        for name, tensor in checkpoint.tensors.items()
        if name not in checkpoint.quantized
    }
    model.load_state_dict(plain, strict=False)
    for name, weight in checkpoint.quantized.items():
        layer, scales = model.get_submodule(name.removesuffix(".weight")), weight.row_scales
        layer.weight.data = torch.from_numpy(weight.dequantize())
        layer.weight_quantizer.disable()
        if scales.fixed is not None:
            reach = scales.fixed().reshape(()) * LARGEST[weight.format]
            layer.input_quantizer.amax = torch.tensor(float(reach))
        if scales.factors is not None:
            layer.input_quantizer.pre_quant_scale = torch.from_numpy(scales.factors())
            if scales.fixed is None:
                layer.input_quantizer._enable_pre_quant_scale = True
