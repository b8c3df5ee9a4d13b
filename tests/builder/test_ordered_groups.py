"""Groups in the order of activations (GPTQ with desc_act): engines against PyTorch with the weights that the files mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.rows import RowScales
from builder.errors import UnsupportedError
from builder.export.layouts import layout_of
from builder.targets.cpu.plan import NOTHING, Code
from builder.targets.held import HeldWeight
from tests.builder.export.exporting import TOKENS, logits
from tests.builder.export.test_round_trip import same_again
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import tiny_llama
from tests.quantized import Array, Written, write_gptq, write_packed

SIZES = {"intermediate_size": 112, "dtype": "float32"}
"""The last group of a row of 112 is short, and its row is padded."""
WRITERS: dict[str, Callable[..., dict[str, Written]]] = {"gptq": write_gptq, "packed": write_packed}


def shuffled(size_in: int) -> Array:
    """Give each input a group, the same for all layers that share inputs."""
    order: Array = np.random.default_rng(size_in).permutation(np.arange(size_in) // 32)
    return order


def meant(written: Written) -> Array:
    """Give the floats `[out, in]` of a weight, input by input."""
    named = shuffled(written.numbers.shape[1])
    zeros = 0 if written.zeros is None else written.zeros[:, named]
    floats: Array = ((written.numbers - zeros) * written.scales[:, named]).astype(np.float32)
    return floats


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_float_weights_have_their_inputs_in_place(
    writer: str, symmetric: bool, tmp_path: Path
) -> None:
    written = WRITERS[writer](tmp_path, order=shuffled, symmetric=symmetric, **SIZES)
    for name, weight in open_checkpoint(str(tmp_path)).quantized.items():
        np.testing.assert_array_equal(weight.dequantize(), meant(written[name]))


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_an_engine_multiplies_each_number_with_its_weight(
    symmetric: bool, target: str, tmp_path: Path
) -> None:
    written = write_gptq(tmp_path / "m", order=shuffled, symmetric=symmetric, **SIZES)
    options: dict[str, Any] = {"allow_fallback": True, "kv": "float32"}
    built = compile_model(tmp_path / "m", tmp_path / "a", target=target, **options)
    model = LlamaForCausalLM.from_pretrained(tiny_llama(tmp_path / "float", **SIZES))
    for name, own in written.items():
        layer = model.get_submodule(name.removesuffix(".weight"))
        layer.weight.data = torch.from_numpy(meant(own))
    with torch.no_grad():
        want = model(torch.tensor([TOKENS])).logits[0].numpy()
    got = logits(built)
    # Rows are rounded to int8. In the order of other inputs the correlation is 0.6.
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.9995
    same_again(built, tmp_path, **options)


def test_layers_that_share_inputs_share_rows_in_their_order(tmp_path: Path) -> None:
    write_gptq(tmp_path / "m", order=shuffled)
    operations = PlanRunner(compile_model(tmp_path / "m", tmp_path / "a")).operations
    ordered = [op for op in operations if op["code"] == Code.QUANTIZE and op["extra"] != NOTHING]
    assert len(ordered) == 2 * 4  # before qkv, o, gate and up, down


def test_layers_of_one_input_and_several_orders_are_refused(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    write_gptq(tmp_path / "m", order=lambda n: draw.permutation(np.arange(n) // 32))
    with pytest.raises(
        UnsupportedError,
        match=r"same rows in several ways, as .*k_proj\.weight and .*order of inputs differ",
    ):
        compile_model(tmp_path / "m", tmp_path / "a")


def test_no_layout_drops_an_order() -> None:
    rows = RowScales(order=lambda: np.arange(32))
    with pytest.raises(UnsupportedError, match=r"w has groups in the order of activations"):
        layout_of([HeldWeight("w", "fp8-dynamic", 0, (4, 32), tuple, rows)])
