"""Imported layers whose rows are rounded with fixed scales or in blocks: engines against PyTorch that rounds the same way."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from builder.checkpoint.open import open_checkpoint
from builder.quant import fp8_block
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.plan import Code, Form
from plugins.quantize.reference import quantize_dynamic, quantize_fixed, quantize_fp4, quantize_fp8
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner
from tests.quantized import Array, Writer, fp8, nvfp4_bytes

TOKENS = list(range(3, 31))
SCALE = np.float32(0.011)
Round = Callable[[Array], Array]


def factors(out: Writer, name: str, size_in: int) -> Array | None:
    """Give what rows of two of the layers are multiplied with, as smoothing leaves it."""
    is_smoothed = name.endswith(("o_proj", "down_proj"))
    return out.draw.uniform(0.5, 2, size_in).astype(np.float32) if is_smoothed else None


def write_fp8(out: Writer, name: str, shape: tuple[int, int]) -> None:
    out.tensors |= {
        f"{name}.weight": fp8(out.draw, shape),
        f"{name}.weight_scale": out.scales(1, 1, 448).reshape(()),
        f"{name}.input_scale": np.full((), SCALE),
    }


def write_nvfp4(out: Writer, name: str, shape: tuple[int, int]) -> None:
    numbers = out.draw.uniform(-6, 6, shape).astype(ml_dtypes.float4_e2m1fn)
    scales = out.draw.uniform(1, 448, (shape[0], shape[1] // 16)).astype(ml_dtypes.float8_e4m3fn)
    out.tensors |= {
        f"{name}.weight": nvfp4_bytes(numbers),
        f"{name}.weight_scale": scales,
        f"{name}.weight_scale_2": np.full((), 1e-4, np.float32),
        f"{name}.input_scale": np.full((), SCALE / 100, np.float32),
    }


def write_int8(out: Writer, name: str, shape: tuple[int, int]) -> None:
    out.tensors |= {
        f"{name}.weight": out.draw.integers(-127, 128, shape).astype(np.int8),
        f"{name}.weight_scale": out.scales(shape[0], 1, 127).ravel(),
        f"{name}.input_scale": np.full((), 4 * SCALE, np.float32),
    }
    if (found := factors(out, name, shape[1])) is not None:
        out.tensors[f"{name}.pre_quant_scale"] = found


def write_awq(out: Writer, name: str, shape: tuple[int, int]) -> None:
    numbers = out.draw.integers(-8, 8, shape)
    pairs = numbers.reshape(shape[0] // 2, 2, shape[1]) & 15
    out.tensors |= {
        f"{name}.weight": (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8),
        f"{name}.weight_scale": out.scales(shape[0], shape[1] // 32, 7),
    }
    if (found := factors(out, name, shape[1])) is not None:
        out.tensors[f"{name}.pre_quant_scale"] = found


def fixed_int8(rows: Array) -> Array:
    numbers, scales = quantize_fixed(rows, rows.shape[1], 4 * SCALE)
    return (numbers * scales).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A scheme of modelopt's, and what it becomes."""

    algorithm: str
    write: Callable[[Writer, str, tuple[int, int]], None]
    format: str
    form: Form
    """Of rows."""
    round: Round


CASES = {
    case.algorithm: case
    for case in (
        Case("FP8", write_fp8, "fp8", Form.E4M3, lambda x: quantize_fp8(x, SCALE)),
        Case("NVFP4", write_nvfp4, "nvfp4", Form.E2M1, lambda x: quantize_fp4(x, SCALE / 100)),
        Case("W8A8_SQ_PER_CHANNEL", write_int8, "int8-static", Form.INT8, fixed_int8),
        Case("W4A16_AWQ", write_awq, "int4", Form.INT8, lambda x: x),
    )
}


def written(folder: Path, case: Case) -> Path:
    out = Writer(folder, dtype="float32", intermediate_size=96)
    for name, weight in out.layers():
        case.write(out, name, weight.shape)
    return out.finish(
        {"quant_method": "modelopt", "quant_algo": case.algorithm, "ignore": ["lm_head"]}
    )


def in_torch(folder: Path, round_rows: Round) -> Array:
    """Run the dequantized model in PyTorch, rounding what its linear layers multiply."""
    checkpoint = open_checkpoint(str(folder))
    model = LlamaForCausalLM.from_pretrained(
        tiny_llama(folder.parent / "float", dtype="float32", intermediate_size=96)
    )
    for name, weight in checkpoint.quantized.items():
        layer = model.get_submodule(name.removesuffix(".weight"))
        layer.weight.data = torch.from_numpy(weight.dequantize())
        read = weight.row_scales.factors

        def before(_: object, args: tuple[torch.Tensor], read: object = read) -> torch.Tensor:
            rows = args[0][0].numpy() * (1 if read is None else read())
            return torch.from_numpy(round_rows(rows.astype(np.float32)))[None]

        layer.register_forward_pre_hook(before)
    with torch.no_grad():
        logits: Array = model(torch.tensor([TOKENS])).logits[0].numpy()
    return logits


@pytest.mark.parametrize("name", CASES)
def test_an_engine_rounds_rows_as_the_checkpoint_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    built = compile_model(written(tmp_path / "model", case), tmp_path / "built", kv="float32")
    (record,) = built.manifest.engines
    assert set(record.realized.values()) == {case.format, "float32"}
    executor = CpuExecutor(built, record, num_threads=2)
    got, want = PagedRunner(executor).whole(TOKENS), in_torch(tmp_path / "model", case.round)
    executor.close()
    # A number that lies between two steps of a rounding may go either way, and changes all rows behind it.
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999
    unrounded = in_torch(tmp_path / "model", lambda x: x)
    if case.format != "int4":
        assert np.median(np.abs(got - want)) < 0.3 * np.median(np.abs(got - unrounded))


@pytest.mark.parametrize("name", CASES)
def test_rows_of_all_layers_are_rounded_and_smoothed_where_they_must_be(
    name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    runner = PlanRunner(compile_model(written(tmp_path / "model", case), tmp_path / "built"))
    forms = [buffer[1] for buffer in runner.buffers]
    linear = [op for op in runner.operations if op["code"] == Code.LINEAR and op["rows"] == 0]
    assert {forms[op["input"]] for op in linear} == {case.form}
    smoothed = [op for op in runner.operations if op["code"] == Code.QUANTIZE and op["weight"] >= 0]
    assert len(smoothed) == (2 * 2 if case.write in (write_int8, write_awq) else 0)


def test_blocks_of_128_inputs_are_rounded_by_themselves(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", dtype="float32", intermediate_size=304)
    built = compile_model(model, tmp_path / "built", quant="fp8-block")
    (record,) = built.manifest.engines
    assert "E4M3 per token and 128" in record.compute
    executor = CpuExecutor(built, record, num_threads=2)
    got = PagedRunner(executor).whole(TOKENS)
    executor.close()
    want = blocks_in_torch(model)
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999


def blocks_in_torch(folder: Path) -> Array:
    model = LlamaForCausalLM.from_pretrained(folder)
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            parts = fp8_block.pack(layer.weight.detach().numpy())
            layer.weight.data = torch.from_numpy(fp8_block.unpack(*parts))
            layer.register_forward_pre_hook(
                lambda _, args: torch.from_numpy(quantize_dynamic(args[0][0].numpy(), 128))[None]
            )
    with torch.no_grad():
        logits: Array = model(torch.tensor([TOKENS])).logits[0].numpy()
    return logits
