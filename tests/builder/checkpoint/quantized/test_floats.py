"""FP8 and NVFP4 weights are read and dequantized exactly, whichever program wrote them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.errors import UnsupportedError
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


def write_nvfp4(folder: Path, section: Any, packed: str, whole: str, *, divides: bool) -> Exact:
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
        p, ct_section("float-quantized", FP8 | {"strategy": "tensor"}, FP8_ROWS | {"dynamic": False}),
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
        p, modelopt("NVFP4", group_size=16), "weight", "weight_scale_2", divides=False)),
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


def test_fixed_scales_of_activations_are_kept(tmp_path: Path) -> None:
    CASES["modelopt"][1](tmp_path)
    weight = next(iter(open_checkpoint(str(tmp_path)).quantized.values()))
    assert weight.input_scale is not None
    assert weight.input_scale() == np.float32(0.01)


REFUSED = {
    "ct tensor": "_proj.weight has an input_scale",
    "modelopt": "_proj.weight has an input_scale",
    "block": "_proj.weight is fp8 .* a scale per block in the rows",
    "modelopt nvfp4": "_proj.weight is nvfp4 .* a scale per group of 16 in the rows",
    "modelopt block": "fp8-weight-only in groups of 128, which the target does not run",
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_and_blocks_that_no_target_runs_are_refused_by_name(case: str, tmp_path: Path) -> None:
    CASES[case][1](tmp_path)
    with pytest.raises(UnsupportedError, match=REFUSED[case]):
        pipeline.plan(CompileRequest(str(tmp_path)))


COMPILED = {
    "ct channel": "fp8",
    "block of one": "fp8",
    "modelopt channel": "fp8",
    "ct nvfp4": "nvfp4",
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
    exact = write_fp8(tmp_path, None, shape=lambda _: ())
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
