"""Checkpoints that llm-compressor itself writes: what they hold is what its library reads, and an engine says what its model says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from builder.checkpoint.groups import spread
from builder.checkpoint.open import open_checkpoint
from builder.targets import open_executor
from tests.built import compile_model
from tests.llm_compressor import quantize_with_llm_compressor
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

pytestmark = pytest.mark.slow

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
"""Multiples of 128, and numbers as published models have them."""
FP8_KV = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
EXACT, NARROW, INTEGERS = 3e-3, 1e-2, 6e-2
"""Bounds on the relative difference of logits: the head's rows are bfloat16; so are attention's, beside FP8 keys; rows are int8."""


@dataclass(frozen=True)
class Case:
    recipe: dict[str, Any]
    label: str
    """What the manifest says was asked for."""
    bound: float


CASES = {
    "FP8_DYNAMIC": Case({"scheme": "FP8_DYNAMIC"}, "fp8-dynamic", EXACT),
    "FP8": Case({"scheme": "FP8"}, "fp8", EXACT),
    "FP8_BLOCK": Case({"scheme": "FP8_BLOCK"}, "fp8-block", EXACT),
    "W8A8": Case({"scheme": "W8A8"}, "int8-channel", INTEGERS),
    "W8A16": Case({"scheme": "W8A16"}, "int8-g128", INTEGERS),
    "W4A16": Case({"scheme": "W4A16"}, "int4-g128", INTEGERS),
    "W4A16_ASYM": Case({"scheme": "W4A16_ASYM"}, "uint4-g128", INTEGERS),
    "NVFP4A16": Case({"scheme": "NVFP4A16"}, "nvfp4-weight-only", EXACT),
    "NVFP4": Case({"scheme": "NVFP4"}, "nvfp4", EXACT),
    "KV": Case({"scheme": "NVFP4A16", "kv_cache_scheme": FP8_KV}, "nvfp4-weight-only", NARROW),
}
HALF_A_STEP = {"fp8": 16, "int8": 0.5, "int4": 0.5, "uint4": 1, "nvfp4": 1}
"""In numbers of a format, where it is coarsest; a zero point that was rounded shifts a group by half a step more."""
BFLOAT16 = 2.0**-8
"""Relative: llm-compressor rounds scales to the type of the model, and divides in it."""


@dataclass(frozen=True)
class Made:
    folder: Path
    asked: NDArray[Any]
    logits: dict[str, NDArray[np.float32]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("llm-compressor")
    model = tiny_llama(folder / "model", **SIZES)
    draw = np.random.default_rng(0)
    # Rows are short: behind a number that rounds the other way, by another order of a sum, all tokens differ by some percent.
    calibrating, asked = draw.integers(0, 256, (4, 32)), draw.integers(0, 256, (48, 4))
    recipes = {name: case.recipe for name, case in CASES.items()}
    logits = quantize_with_llm_compressor(
        model, recipes, folder, calibrating=calibrating, asked=asked
    )
    return Made(folder, asked, logits)


@pytest.mark.parametrize("case", CASES)
def test_weights_are_what_the_library_reads(case: str, made: Made) -> None:
    want = load_file(made.folder / f"{case}.safetensors")
    quantized = open_checkpoint(str(made.folder / case)).quantized
    assert quantized.keys() == want.keys()
    assert len(want) == 14
    for name, weight in quantized.items():
        np.testing.assert_allclose(weight.dequantize(), want[name], rtol=2**-22, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_weights_are_within_a_rounding_of_the_models(case: str, made: Made) -> None:
    source = open_checkpoint(str(made.folder / "model")).tensors
    for name, weight in open_checkpoint(str(made.folder / case)).quantized.items():
        _, scales, *rest = weight.read()
        steps = scales.astype(np.float32)
        if weight.format == "nvfp4":
            steps *= rest[0]
        want = source[name].read()
        bound = HALF_A_STEP[weight.format] * spread(steps, weight.group, weight.shape[1])
        assert (np.abs(weight.dequantize() - want) <= bound + BFLOAT16 * np.abs(want)).all()


@pytest.mark.parametrize("case", CASES)
def test_an_engine_says_what_the_librarys_own_model_says(
    case: str, made: Made, tmp_path: Path
) -> None:
    built = compile_model(made.folder / case, tmp_path / "built", max_num_seqs=64)
    (record,) = built.manifest.engines
    assert record.requested == f"{CASES[case].label} as in the checkpoint (compressed-tensors)"
    assert record.fallbacks == {}
    executor = open_executor(built)
    runner = PagedRunner(executor)
    got = np.stack([runner.whole(row.tolist()) for row in made.asked])
    executor.close()
    want, plain = made.logits[case], made.logits["float"]
    rows = np.linalg.norm(got - want, axis=2) / np.linalg.norm(want, axis=2)
    assert np.median(rows) < CASES[case].bound
    # What rounding costs in this model of strong layers is the format's: the library's model is as far from the float one.
    assert correlation(got, plain) > correlation(want, plain) - 2e-3


def test_scales_of_keys_and_values_are_those_of_the_file(made: Made, tmp_path: Path) -> None:
    built = compile_model(made.folder / "KV", tmp_path / "built")
    (group,) = built.manifest.kv.groups
    assert group.dtype == "fp8"
    with safe_open(made.folder / "KV" / "model.safetensors", "pt") as file:
        for scales, name in ((group.key_scales, "k_scale"), (group.value_scales, "v_scale")):
            layers = (f"model.layers.{layer}.self_attn.{name}" for layer in range(2))
            assert list(scales) == [file.get_tensor(layer).item() for layer in layers]


def correlation(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    return float(np.corrcoef(left.ravel(), right.ravel())[0, 1])
