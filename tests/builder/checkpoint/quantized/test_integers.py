"""Integers and scales of imported checkpoints are those of the files, bit for bit, whichever program packed them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.quantized.numbers import codes, signed
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.quant import FORMATS
from tests.quantized import Written, words, write_awq, write_gptq, write_packed, write_w8a8


def reversed_groups(size_in: int) -> np.ndarray[Any, Any]:
    return np.repeat(np.arange(size_in // 32)[::-1], 32)


def shuffled(size_in: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size_in).permutation(np.arange(size_in) // 32)


CASES: dict[str, tuple[str, Callable[[Path], dict[str, Written]]]] = {
    "gptq int4": ("int4", write_gptq),
    "gptq int4 row": ("int4", lambda p: write_gptq(p, group=0)),
    "gptq int4 v2": ("int4", lambda p: write_gptq(p, version="gptq_v2", group=128)),
    "gptq int4 bfloat16": ("int4", lambda p: write_gptq(p, dtype="bfloat16")),
    "gptq uint4 v1": ("uint4", lambda p: write_gptq(p, symmetric=False)),
    "gptq uint4 v2": ("uint4", lambda p: write_gptq(p, symmetric=False, version="gptq_v2")),
    "gptq int8": ("int8", lambda p: write_gptq(p, bits=8)),
    "gptq g_idx": ("int4", lambda p: write_gptq(p, order=lambda n: np.arange(n) // 32)),
    "awq": ("uint4", write_awq),
    "awq row": ("uint4", lambda p: write_awq(p, group=0)),
    "packed int4": ("int4", write_packed),
    "packed uint4": ("uint4", lambda p: write_packed(p, symmetric=False)),
    "packed int8": ("int8", lambda p: write_packed(p, bits=8)),
    "packed int8 channel": ("int8", lambda p: write_packed(p, bits=8, group=0)),
    "packed ragged": ("int4", lambda p: write_packed(p, hidden_size=60, head_dim=20, num_attention_heads=3, num_key_value_heads=1)),
    "packed uint4 ragged": ("uint4", lambda p: write_packed(p, symmetric=False, intermediate_size=100)),
    "w8a8": ("int8", write_w8a8),
    "w8a8 tensor": ("int8", lambda p: write_w8a8(p, strategy="tensor")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_scales_are_those_of_the_file(case: str, tmp_path: Path) -> None:
    name, write = CASES[case]
    written = write(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.quantized.keys() == written.keys()
    assert len(written) == 14
    for key, weight in checkpoint.quantized.items():
        want = written[key]
        assert (weight.format, weight.group, weight.shape) == (name, want.group, want.numbers.shape)
        numbers, scales, *zeros = weight.read()
        np.testing.assert_array_equal(numbers.astype(np.int64), want.numbers)
        np.testing.assert_array_equal(scales, want.scales)
        assert scales.dtype == np.float32
        if want.zeros is not None:
            np.testing.assert_array_equal(zeros[0].astype(np.int64), want.zeros)


@pytest.mark.parametrize("case", CASES)
def test_parts_are_what_the_formats_own_pack_gives(case: str, tmp_path: Path) -> None:
    name, write = CASES[case]
    write(tmp_path)
    weight = next(iter(open_checkpoint(str(tmp_path)).quantized.values()))
    group = weight.group if weight.group in FORMATS[name].GROUPS else 32
    packed = FORMATS[name].pack(weight.dequantize(), group)
    for own, theirs in zip(packed, weight.read(), strict=True):
        assert own.dtype == theirs.dtype
        assert own.shape == theirs.shape or weight.group != group


@pytest.mark.parametrize("case", CASES)
def test_the_float_tensor_is_what_the_format_unpacks(case: str, tmp_path: Path) -> None:
    name, write = CASES[case]
    written = write(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path))
    for key, weight in checkpoint.quantized.items():
        got = checkpoint.tensors[key].read()
        np.testing.assert_array_equal(got, FORMATS[name].unpack(*weight.read(), weight.group))
        np.testing.assert_array_equal(got, written[key].floats())
        assert checkpoint.tensors[key].stored == name


def test_parts_leave_the_tensors_and_all_other_weights_stay(tmp_path: Path) -> None:
    write_gptq(tmp_path, order=lambda n: np.arange(n) // 32)
    checkpoint = open_checkpoint(str(tmp_path))
    assert not [name for name in checkpoint.tensors if not name.endswith(".weight")]
    assert checkpoint.tensors["model.embed_tokens.weight"].stored == "float16"
    assert "quantization_config" not in checkpoint.config
    assert checkpoint.method == "gptq"


def test_groups_that_are_runs_in_another_order_get_their_own_scales(tmp_path: Path) -> None:
    for number, write in enumerate((write_gptq, write_packed)):
        written = write(tmp_path / str(number), order=reversed_groups, symmetric=False)
        for key, weight in open_checkpoint(str(tmp_path / str(number))).quantized.items():
            _, scales, zeros = weight.read()
            assert written[key].zeros is not None
            np.testing.assert_array_equal(scales, written[key].scales[:, ::-1])
            np.testing.assert_array_equal(zeros.astype(int), written[key].zeros[:, ::-1])


def test_a_scale_of_0_is_exact_where_all_numbers_are_0(tmp_path: Path) -> None:
    numbers, scales = np.zeros((2, 64), np.int8), np.array([[0, 1], [1, 1]], np.float32)
    numbers[:, 40] = 3
    weight = QuantizedWeight("w", "int8", 32, (2, 64), "float32", 0, lambda: (numbers, scales))
    assert not weight.dequantize()[0, :32].any()


@given(
    bits=st.sampled_from((4, 8)),
    rows=st.integers(1, 5),
    size=st.integers(1, 40),
    seed=st.integers(0, 1 << 30),
)
def test_whatever_is_packed_comes_back(bits: int, rows: int, size: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1 << bits, (rows, size))
    got = codes(words(values, bits, 1), bits)
    np.testing.assert_array_equal(got[:, :size], values)
    assert not got[:, size:].any()
    lowered = signed(got, bits).astype(np.int64)
    np.testing.assert_array_equal(lowered[:, :size], values - (1 << (bits - 1)))
