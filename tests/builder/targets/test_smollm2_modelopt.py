"""SmolLM2-135M as modelopt quantizes it: every linear layer by itself, and the whole model as far as modelopt agrees with itself.

Rows that are rounded to few bits make a cliff of every boundary between two steps, and 30 layers lie behind the first flip. So
logits of the same numbers, summed in another order, differ by several percent, in modelopt's own model too. What can be held to
the bounds of a sum is each layer, given the rows that modelopt's model gives it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from builder import pipeline
from builder.checkpoint import rows as kinds
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.sources.hf import with_weights_of
from builder.checkpoint.tensors import Checkpoint
from builder.gate.text import own_text
from builder.limits import LimitOptions
from builder.pipeline import CompileRequest
from builder.quant.balance import balanced
from builder.quant.calibration.model import torch_model
from builder.targets import open_executor
from builder.targets.cpu import panels
from builder.targets.cpu.plan import Form
from plugins.quantize import reference
from tests.built import Reports
from tests.modelopt_model import Product, logits_of, products_of, quantized_model
from tests.models import smollm2_gguf
from tests.paged_runner import PagedRunner
from triton_backend.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.slow]

Float32 = NDArray[np.float32]

CONFIGS = {"FP8_DEFAULT_CFG": 1e-2, "NVFP4_DEFAULT_CFG": 1e-2, "INT8_SMOOTHQUANT_CFG": 1e-3}
"""Most relative error of a layer's results, with one flip among its rows; half of the layers have none."""
EXACT = 1e-5
"""Of layers without a flip: sums of float32 products in another order."""
KEPT, MOST_KEPT = 2e-3, 1e-2
"""Of half of target cpu's int8 layers and of all: it keeps 11 bits of scales, and rows end at -127 where modelopt's go to -128."""
NOISE = 2.0
"""What logits may differ by, in what modelopt's own differ by when sums are exact."""
LENGTH = 64
TEXTS = own_text().passages


@dataclass(frozen=True)
class Quantized:
    """What modelopt made, and says."""

    bound: float
    """Of a layer."""
    model: Any
    checkpoint: Checkpoint
    asked: NDArray[np.int64]
    products: dict[str, Product]
    logits: Float32


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    checkpoint = open_checkpoint(str(smollm2_gguf()))
    torch_model(checkpoint).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(checkpoint.tokenizer.tokenizer_json)
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module", params=CONFIGS)
def quantized(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Quantized:
    original = open_checkpoint(str(smollm2_gguf()))
    tokenizer = Tokenizer(original.tokenizer.tokenizer_json, bos_token_id=None, add_bos=False)
    ids = np.array(tokenizer.encode("\n\n".join([*TEXTS, *TEXTS])))
    calibrating, asked = ids[: 8 * LENGTH].reshape(2, -1), ids[-2 * LENGTH :].reshape(2, LENGTH)
    folder = tmp_path_factory.mktemp("exported")
    model = quantized_model(source, request.param, folder, calibrating=calibrating)
    return Quantized(
        CONFIGS[request.param],
        model,
        with_weights_of(original, folder),
        asked,
        products_of(model, asked),
        logits_of(model, asked),
    )


def relative(found: Float32, wanted: Float32) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def rounded(weight: QuantizedWeight, rows: Float32, least: int) -> Float32:
    """Round rows by the reference of our kernels, with the scales of a checkpoint; int8 no lower than `least`."""
    scales = weight.row_scales
    assert scales.fixed is not None
    fixed = np.float32(scales.fixed().reshape(()))
    if scales.factors is not None:
        rows = rows * scales.factors()
    if weight.rows == kinds.SIXTEEN:
        return reference.quantize_fp4(rows, float(fixed))
    if weight.format == "fp8":
        return reference.quantize_fp8(rows, float(fixed))
    return np.rint(np.clip(rows / fixed, least, 127)) * fixed


def kept_by_cpu(weight: QuantizedWeight) -> Float32:
    """Give the weight `[out, in]` with scales as panels of target cpu hold them."""
    if weight.format != "int8":
        return weight.dequantize()
    read, scales_of_rows = balanced(weight)
    assert scales_of_rows.fixed is not None
    assert weight.row_scales.fixed is not None
    moved = scales_of_rows.fixed() / weight.row_scales.fixed()
    numbers, scales = read()
    group = 64
    spread = scales.repeat(weight.shape[1] // group, axis=1)
    panels_of = panels.to_panels(Form.INT8, group, (numbers, spread))
    numbers, scales = panels.from_panels(Form.INT8, group, panels_of, *weight.shape)
    return numbers * (scales * moved).repeat(group, axis=1)


def errors_of_layers(
    quantized: Quantized, weight_of: Callable[[QuantizedWeight], Float32], least: int
) -> list[float]:
    """Give the relative error of each layer's results, given the rows that modelopt's model gives it."""
    found = []
    for name, weight in quantized.checkpoint.quantized.items():
        product = quantized.products[name]
        results = rounded(weight, product.rows, least) @ weight_of(weight).T
        found.append(relative(results, product.results))
    return found


def test_every_layer_gives_what_modelopts_gives_for_the_same_rows(quantized: Quantized) -> None:
    errors = errors_of_layers(quantized, QuantizedWeight.dequantize, -128)
    assert len(errors) == 7 * 30
    assert max(errors) < quantized.bound
    assert np.median(errors) < EXACT


def test_what_target_cpu_keeps_of_a_layer_gives_nearly_the_same(quantized: Quantized) -> None:
    errors = errors_of_layers(quantized, kept_by_cpu, -127)
    assert max(errors) < MOST_KEPT
    assert np.median(errors) < KEPT


def exact_linear(rows: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    """Multiply with sums in float64, which is another order of adding to float32."""
    assert bias is None
    return (rows.double() @ weight.double().T).float()


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_logits_differ_from_modelopts_no_more_than_its_own_do_when_sums_are_exact(
    quantized: Quantized, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LimitOptions(max_seq_len=LENGTH, max_num_seqs=LENGTH)
    plan = pipeline.plan_checkpoint(
        quantized.checkpoint, CompileRequest("", targets=(target,), limits=limits)
    )
    executor = open_executor(pipeline.build(plan, tmp_path / "built", progress=Reports()))
    runner = PagedRunner(executor)
    found = np.stack([runner.whole(row.tolist()) for row in quantized.asked])
    executor.close()
    monkeypatch.setattr(torch.nn.functional, "linear", exact_linear)
    noise = relative(logits_of(quantized.model, quantized.asked), quantized.logits)
    assert noise > 1e-2  # else bounds of a sum would do
    assert relative(found, quantized.logits) < NOISE * noise
