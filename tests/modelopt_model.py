"""Models that nvidia-modelopt quantizes: what its own fake-quantized torch model says, and the checkpoint that it exports."""

import contextlib
import copy
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from builder.checkpoint.open import open_checkpoint

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it would do with a GPU
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from modelopt.torch.export.unified_export_hf import requantize_resmooth_fused_llm_layers
    from modelopt.torch.quantization.nn import register_quant_backend

BACKEND = "tests-nvfp4"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Product:
    """What a linear layer was given and gave."""

    rows: Float32
    """`[T, in]`, not yet rounded."""
    results: Float32
    """`[T, out]`"""


def quantize_with_modelopt(
    source: Path, config: str, folder: Path, *, calibrating: NDArray[Any], asked: NDArray[Any]
) -> Float32:
    """Calibrate and export as `quantized_model` does, and give logits `[m, length, V]` of `asked` tokens `[m, length]`."""
    return logits_of(quantized_model(source, config, folder, calibrating=calibrating), asked)


def quantized_model(source: Path, config: str, folder: Path, *, calibrating: NDArray[Any]) -> Any:
    """Calibrate by tokens `[n, length]` in float32, export to `folder`, and give the fake-quantized model.

    Its weights are those that were exported, which are not those of calibration: the export makes scales equal in layers that
    share an input, and rounds by a division where the model rounds by a product, so that a number between two steps may go the
    other way. One such weight of 98,304 in FP8 moves all logits by 1.7 %.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
        rules = copy.deepcopy(getattr(mtq, config))
        _use_backend(rules)
        with torch.inference_mode():
            batch = torch.from_numpy(calibrating.astype(np.int64))
            mtq.quantize(model, rules, lambda quantized: quantized(batch))
            requantize_resmooth_fused_llm_layers(model)
            exported = copy.deepcopy(model)
            export_hf_checkpoint(exported, dtype=torch.float32, export_dir=folder)
            del exported
            for name in TOKENIZER:
                if (source / name).exists():
                    shutil.copy(source / name, folder / name)
            _take_weights(model, folder)
    return model


def logits_of(model: Any, asked: NDArray[Any]) -> Float32:
    """Give the logits `[m, length, V]` of tokens `[m, length]`."""
    with torch.inference_mode():
        logits: Float32 = model(torch.from_numpy(asked.astype(np.int64))).logits.numpy()
    return logits


def products_of(model: Any, asked: NDArray[Any]) -> dict[str, Product]:
    """Give what each quantized layer does to tokens `[m, length]`, by the name of its weight."""
    found: dict[str, Product] = {}

    def keeper(name: str) -> Callable[[Any, tuple[torch.Tensor], torch.Tensor], None]:
        def keep(layer: Any, given: tuple[torch.Tensor], results: torch.Tensor) -> None:
            rows = given[0].reshape(-1, layer.in_features).numpy().copy()
            found[name] = Product(rows, results.reshape(len(rows), -1).numpy().copy())

        return keep

    with contextlib.ExitStack() as hooks:
        for name, layer in model.named_modules():
            if hasattr(layer, "input_quantizer") and hasattr(layer, "in_features"):
                hook = layer.register_forward_hook(keeper(f"{name}.weight"))
                hooks.callback(hook.remove)
        logits_of(model, asked)
    return found


def _take_weights(model: Any, folder: Path) -> None:
    """Multiply by the weights of a checkpoint, rounded as they are there."""
    for name, weight in open_checkpoint(str(folder)).quantized.items():
        layer = model.get_submodule(name.removesuffix(".weight"))
        layer.weight.data = torch.from_numpy(weight.dequantize())
        layer.weight_quantizer.disable()


def _use_backend(rules: dict[str, Any]) -> None:
    """Let NVFP4 be rounded by torch operations: modelopt's own kernel needs a GPU."""
    settings = [rule["cfg"] for rule in rules["quant_cfg"] if "cfg" in rule]
    narrow = [one for one in settings if one.get("num_bits") == (2, 1)]
    if narrow:
        register_quant_backend(BACKEND, _nvfp4)
    for one in narrow:
        one["backend"] = BACKEND


def _nvfp4(values: torch.Tensor, quantizer: Any) -> torch.Tensor:
    """Round to E2M1 times an E4M3 scale per 16 times a float32 scale of the tensor, by the definition of the format."""
    whole = quantizer.amax.float().max() / (6 * 448)
    groups = values.float().reshape(-1, 16)
    peaks = groups.abs().amax(dim=1, keepdim=True)
    scales = (peaks / (6 * whole)).clamp(max=448).to(torch.float8_e4m3fn).float() * whole
    scaled = torch.where(scales > 0, groups / scales.where(scales > 0, torch.ones(())), 0)
    size = scaled.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    rounded = (torch.round(size / step) * step).clamp(max=6) * scaled.sign()
    return (rounded * scales).reshape(values.shape).to(values.dtype)
