"""FP8 and NVFP4 weights are read and dequantized exactly, whichever program wrote them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.cpu.plan import Code
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.quantized import Array, Writer, ct_section, fp8, nvfp4_bytes

FP8_ROWS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None}
NVFP4 = {
    "num_bits": 4,
    "type": "float",
    "symmetric": True,
    "group_size": 16,
    "strategy": "tensor_group",
}
NVFP4_ROWS = NVFP4 | {"dynamic": "local"}
Exact = dict[str, Array]
"""Weights in float64, as the files mean them."""


def spread(scales: Array, tall: int, wide: int, shape: tuple[int, ...]) -> Array:
    return np.repeat(np.repeat(scales, tall, 0), wide, 1)[: shape[0], : shape[1]].astype(np.float64)


def write_fp8(
    folder: Path,
    section: Any,
    *,
    block: tuple[int, int] | None = None,
    suffix: str = "weight_scale",
    shape: Callable[[int], tuple[int, ...]] = lambda n: (n, 1),
    extra: str | None = None,
) -> Exact:
    out, exact = Writer(folder, dtype="bfloat16"), {}
    for name, weight in out.layers():
        numbers = fp8(out.draw, weight.shape)
        if block is None:
            sizes = shape(len(weight))
            scales = out.scales(int(np.prod(sizes)), 1, 448)
            wide = spread(
                scales, 1 if len(scales) > 1 else len(weight), weight.shape[1], weight.shape
            )
        else:
            tall, width = (-(-size // each) for size, each in zip(weight.shape, block, strict=True))
            scales, sizes = out.scales(tall, width, 448), (tall, width)
            wide = spread(scales, *block, weight.shape)
        out.tensors |= {f"{name}.weight": numbers, f"{name}.{suffix}": scales.reshape(sizes)}
        if extra is not None:
            out.tensors[f"{name}.{extra}"] = np.full((), 0.01, np.float32)
        exact[f"{name}.weight"] = numbers.astype(np.float64) * wide
    out.finish(section)
    return exact


def write_nvfp4(
    folder: Path, section: Any, packed: str, whole: str, *, divides: bool, rows: str | None = None
) -> Exact:
    out, exact = Writer(folder, dtype="bfloat16"), {}
    for name, weight in out.layers():
        numbers = out.draw.uniform(-6, 6, weight.shape).astype(ml_dtypes.float4_e2m1fn)
        count = weight.shape[1] // 16
        scales = out.draw.uniform(1, 448, (len(weight), count)).astype(ml_dtypes.float8_e4m3fn)
        factor = np.float32(out.draw.uniform(1e-4, 2e-4))
        stored = np.float32(1 / factor) if divides else factor
        out.tensors |= {
            f"{name}.{packed}": nvfp4_bytes(numbers),
            f"{name}.weight_scale": scales,
            f"{name}.{whole}": np.full((1,) if divides else (), stored),
        }
        if rows is not None:
            out.tensors[f"{name}.{rows}"] = np.full((), 100 if divides else 0.01, np.float32)
        step = numbers.astype(np.float64) * spread(scales, 1, 16, weight.shape)
        exact[f"{name}.weight"] = (
            step / np.float64(stored) if divides else step * np.float64(stored)
        )
    out.finish(section)
    return exact


def modelopt(algorithm: str, **fields: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **fields}


BLOCK_FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [32, 48],
    "modules_to_not_convert": ["lm_head"],
}
CASES: dict[str, tuple[str, Callable[[Path], Exact]]] = {
    "ct channel": ("fp8", lambda p: write_fp8(p, ct_section("float-quantized", FP8 | {"strategy": "channel"}, FP8_ROWS))),
    "ct tensor": ("fp8", lambda p: write_fp8(
        p, ct_section("float-quantized", FP8 | {"strategy": "tensor"}, FP8_ROWS | {"strategy": "tensor", "dynamic": False}),
        shape=lambda _: (1,), extra="input_scale")),
    "ct block": ("fp8", lambda p: write_fp8(
        p, ct_section("float-quantized", FP8 | {"strategy": "block", "block_structure": [32, 16]}, FP8_ROWS), block=(32, 16))),
    "ct nvfp4": ("nvfp4", lambda p: write_nvfp4(
        p, ct_section("nvfp4-pack-quantized", NVFP4, None), "weight_packed", "weight_global_scale", divides=True)),
    "block": ("fp8", lambda p: write_fp8(p, BLOCK_FP8, block=(32, 48), suffix="weight_scale_inv")),
    "block of one": ("fp8", lambda p: write_fp8(p, BLOCK_FP8 | {"weight_block_size": None}, shape=lambda _: ())),
    "modelopt": ("fp8", lambda p: write_fp8(p, modelopt("FP8"), shape=lambda _: (), extra="input_scale")),
    "modelopt channel": ("fp8", lambda p: write_fp8(p, modelopt("FP8_PER_CHANNEL_PER_TOKEN"), shape=lambda n: (n,))),
    "modelopt block": ("fp8", lambda p: write_fp8(p, modelopt("fp8_pb_wo"), block=(128, 128))),
    "modelopt nvfp4": ("nvfp4", lambda p: write_nvfp4(
        p, modelopt("NVFP4", group_size=16), "weight", "weight_scale_2", divides=False, rows="input_scale")),
    "ct nvfp4 rows": ("nvfp4", lambda p: write_nvfp4(
        p, ct_section("nvfp4-pack-quantized", NVFP4, NVFP4_ROWS), "weight_packed", "weight_global_scale", divides=True,
        rows="input_global_scale")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_weights_are_what_the_files_mean_to_the_last_bit_of_float32(
    case: str, tmp_path: Path
) -> None:
    form, write = CASES[case]
    exact = write(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.quantized.keys() == exact.keys()
    for name, want in exact.items():
        assert checkpoint.quantized[name].format == form
        np.testing.assert_allclose(checkpoint.tensors[name].read(), want, rtol=2**-22, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_numbers_keep_their_own_type(case: str, tmp_path: Path) -> None:
    form, write = CASES[case]
    write(tmp_path)
    weight = next(iter(open_checkpoint(str(tmp_path)).quantized.values()))
    numbers, scales, *rest = weight.read()
    kind = {"fp8": ml_dtypes.float8_e4m3fn, "nvfp4": ml_dtypes.float4_e2m1fn}[form]
    assert numbers.dtype == kind
    assert scales.shape == (64, -(-weight.shape[1] // weight.group) if weight.group else 1)
    assert [part.dtype for part in rest] == [np.float32] * (form == "nvfp4")


@pytest.mark.parametrize("case", ["modelopt", "ct tensor", "modelopt nvfp4", "ct nvfp4 rows"])
def test_fixed_scales_of_activations_are_kept(case: str, tmp_path: Path) -> None:
    CASES[case][1](tmp_path)
    weight = next(iter(open_checkpoint(str(tmp_path)).quantized.values()))
    assert weight.row_scales.fixed is not None
    assert weight.row_scales.fixed() == np.float32(0.01)


def without(part: str, folder: Path) -> None:
    """Take one of these tensors out of the files."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors[next(name for name in sorted(tensors) if name.endswith(part))]
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("case", ["modelopt", "ct tensor", "modelopt nvfp4"])
def test_a_fixed_scale_that_is_missing_is_refused_by_name(case: str, tmp_path: Path) -> None:
    CASES[case][1](tmp_path)
    without("input_scale", tmp_path)
    with pytest.raises(
        CheckpointError, match=r"down_proj is multiplied with .*input_scale is missing"
    ):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("value", [0, -1, np.inf, np.nan, 1e-38])
def test_a_fixed_scale_that_divides_nothing_is_refused_by_name(
    value: float, tmp_path: Path
) -> None:
    CASES["modelopt"][1](tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.down_proj.input_scale"
    tensors[name] = torch.tensor(value, dtype=torch.float32)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        compile_model(tmp_path, tmp_path / "out")


def test_a_scale_of_rows_that_the_config_does_not_know_of_is_refused(tmp_path: Path) -> None:
    section = ct_section("float-quantized", FP8 | {"strategy": "channel"}, FP8_ROWS)
    write_fp8(tmp_path, section, extra="input_scale")
    with pytest.raises(CheckpointError, match=r"input_scale is there, but by the config"):
        open_checkpoint(str(tmp_path))


REFUSED = {
    "ct block": "checkpoint is fp8-dynamic in groups of 16, which the target does not run",
    "block": "_proj.weight is fp8 .* a scale per token and 48 inputs in the rows",
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_and_blocks_that_no_target_runs_are_refused_by_name(case: str, tmp_path: Path) -> None:
    CASES[case][1](tmp_path)
    with pytest.raises(UnsupportedError, match=REFUSED[case]):
        pipeline.plan(CompileRequest(str(tmp_path)))


COMPILED = {
    "ct channel": "fp8-dynamic",
    "ct tensor": "fp8",
    "block of one": "fp8-dynamic",
    "modelopt": "fp8",
    "modelopt block": "fp8-weight-only",
    "modelopt channel": "fp8-dynamic",
    "ct nvfp4": "nvfp4-weight-only",
    "modelopt nvfp4": "nvfp4",
    "ct nvfp4 rows": "nvfp4",
}


@pytest.mark.parametrize("case", COMPILED)
def test_the_engine_multiplies_exactly_what_the_files_stand_for(case: str, tmp_path: Path) -> None:
    exact = CASES[case][1](tmp_path / "m")
    artifact = compile_model(tmp_path / "m", tmp_path / "a")
    (record,) = artifact.manifest.engines
    assert record.emulated == (COMPILED[case],)
    assert record.requested.startswith(f"{COMPILED[case]} as in the checkpoint")
    runner = PlanRunner(artifact)
    operation = [op for op in runner.operations if op["code"] == Code.LINEAR][1]
    numbers, _ = runner.weights[operation["weight"]].matrix(operation["scale"])
    want = next(value for name, value in exact.items() if "0.self_attn.o_proj" in name)
    np.testing.assert_allclose(numbers, want, rtol=2**-22, atol=0)


def test_modelopts_own_file_is_read_where_the_config_says_nothing(tmp_path: Path) -> None:
    exact = write_fp8(tmp_path, None, shape=lambda _: (), extra="input_scale")
    content = {
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head"],
        },
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(content))
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.quantized.keys() == exact.keys()
    assert "hf_quant_config.json" in [file.name for file in checkpoint.source.files]


def test_int8_weights_of_modelopt_are_read_per_channel(tmp_path: Path) -> None:
    out, written = Writer(tmp_path, dtype="bfloat16"), {}
    for name, weight in out.layers():
        numbers = out.draw.integers(-127, 128, weight.shape).astype(np.int8)
        written[f"{name}.weight"] = numbers
        scales = out.scales(len(weight), 1, 127).ravel()
        out.tensors |= {f"{name}.weight": numbers, f"{name}.weight_scale": scales}
    out.finish(modelopt("W8A16"))
    for name, weight in open_checkpoint(str(tmp_path)).quantized.items():
        numbers, scales = weight.read()
        assert (weight.format, scales.shape) == ("int8", (len(numbers), 1))
        np.testing.assert_array_equal(numbers, written[name])
