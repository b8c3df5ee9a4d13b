"""modelopt checkpoints that mix formats: each layer is read by its own, and names and tensors agree both ways."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from tests.built import compile_model
from tests.quantized import Array, Writer, fp8, nvfp4_bytes

LEFT = "model.layers.1.self_attn.o_proj"
Layers = dict[str, Any]


def write_mixed(folder: Path, alter: Callable[[Layers], object] = lambda _: None) -> Path:
    """Attention in FP8, MLPs in NVFP4, one layer as it was; `alter` changes what the config says of them."""
    out, layers = Writer(folder, dtype="bfloat16"), Layers()
    for name, weight in out.layers():
        one = {"weight_scale": np.float32(0.002), "input_scale": np.float32(0.01)}
        parts: dict[str, Array]
        if name == LEFT:
            out.tensors[f"{name}.weight"] = weight
            continue
        if ".self_attn." in name:
            layers[name] = {"quant_algo": "FP8"}
            parts = {"weight": fp8(out.draw, weight.shape), "weight_scale": one["weight_scale"]}
        else:
            layers[name] = {"quant_algo": "NVFP4", "group_size": 16}
            numbers = out.draw.uniform(-6, 6, weight.shape).astype(ml_dtypes.float4_e2m1fn)
            scales = np.full((len(weight), weight.shape[1] // 16), 2, ml_dtypes.float8_e4m3fn)
            parts = {"weight": nvfp4_bytes(numbers), "weight_scale": scales}
            parts["weight_scale_2"] = one["weight_scale"]
        parts["input_scale"] = one["input_scale"]
        out.tensors |= {f"{name}.{part}": np.asarray(value) for part, value in parts.items()}
    alter(layers)
    section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": []}
    return out.finish(section | {"quantized_layers": layers})


def test_each_layer_has_its_own_format_and_the_engine_runs_all(tmp_path: Path) -> None:
    model = write_mixed(tmp_path / "model")
    weights = open_checkpoint(str(model)).quantized
    formats = {name: weight.format for name, weight in weights.items()}
    assert formats["model.layers.0.self_attn.q_proj.weight"] == "fp8"
    assert formats["model.layers.1.mlp.down_proj.weight"] == "nvfp4"
    assert all(weight.row_scales.fixed is not None for weight in weights.values())
    (engine,) = compile_model(model, tmp_path / "built").manifest.engines
    assert engine.realized["model.layers.0.self_attn.q_proj.weight"] == "fp8"
    assert engine.realized["model.layers.1.mlp.down_proj.weight"] == "nvfp4"
    assert engine.realized[f"{LEFT}.weight"] == "bfloat16"
    assert engine.emulated == ("fp8", "nvfp4")


NAME = "model.layers.0.mlp.up_proj"
CONTRADICTIONS: list[tuple[Callable[[Layers], object], str]] = [
    (lambda layers: layers.pop(NAME), f"{NAME} is quantized, but quantization_config says"),
    (lambda layers: layers.update({LEFT: {"quant_algo": "FP8"}}), f"that {LEFT} is quantized"),
    (lambda layers: layers.update(ghost={"quant_algo": "FP8"}), "that ghost is quantized, and no"),
    (lambda layers: layers.update({NAME: {"quant_algo": "FP8"}}), f"{NAME}.weight is stored as U8"),
]


@pytest.mark.parametrize(("alter", "said"), CONTRADICTIONS)
def test_names_and_tensors_that_disagree_are_refused(
    alter: Callable[[Layers], object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(str(write_mixed(tmp_path, alter)))


def test_a_layer_of_an_unknown_kind_or_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    def unknown(layers: Layers) -> None:
        layers[NAME]["quant_algo"] = "W3A3"

    def more(layers: Layers) -> None:
        layers[NAME]["rotated"] = True

    for alter, said in ((unknown, r"up_proj: quant_algo w3a3 .* supported"), (more, "rotated not")):
        with pytest.raises(UnsupportedError, match=said):
            open_checkpoint(str(write_mixed(tmp_path / said[:3], alter)))


def test_formats_are_not_searched_for_in_what_is_quantized_already(tmp_path: Path) -> None:
    write_mixed(tmp_path)
    request = CompileRequest(str(tmp_path), options=TargetOptions(quant="auto", bits=6.0))
    with pytest.raises(UnsupportedError, match="format auto: the checkpoint is quantized already"):
        pipeline.plan(request)
