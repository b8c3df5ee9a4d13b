"""Packed weights: what is read back from panels is what went in."""

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from builder.errors import BuildError
from builder.quant import int4, int8, uint4
from builder.targets.cpu import packing
from builder.targets.cpu.packing import Matrix, Packed
from builder.targets.cpu.panels import SCALE_FACTOR
from builder.targets.cpu.plan import Form
from tests.builder.targets.cpu.plan_runner import Weight

SIZES = [(16, 32), (1, 32), (17, 33), (48, 576), (100, 90)]


def floats(size_out: int, size_in: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((size_out, size_in), np.float32)


def int8_matrix(weight: np.ndarray, name: str = "w") -> Matrix:
    return Matrix(name, Form.INT8, 32, *weight.shape, lambda: int8.pack(weight, 32))


def float_matrix(weight: np.ndarray, name: str = "w") -> Matrix:
    return Matrix(name, Form.FLOAT32, 0, *weight.shape, lambda: (weight,))


def unpacked(packed: Packed) -> np.ndarray:
    data = packed.read()
    assert data.nbytes == packed.num_bytes
    assert packed.num_bytes % 64 == 0
    weight = Weight(packed.form, packed.group, packed.size_out, packed.size_in, data)
    numbers, scales = weight.matrix(1 / SCALE_FACTOR)
    return numbers * np.repeat(scales, packed.group, axis=1) if scales.size else numbers


@pytest.mark.parametrize("sizes", SIZES)
def test_float_panels_hold_the_weight_and_zeros(sizes: tuple[int, int]) -> None:
    weight = floats(*sizes)
    got = unpacked(packing.pack_stacked([float_matrix(weight)]))
    np.testing.assert_array_equal(got[: sizes[0], : sizes[1]], weight)
    assert not got[sizes[0] :].any()


@pytest.mark.parametrize("sizes", SIZES)
def test_bfloat16_panels_hold_the_rounded_weight_and_zeros(sizes: tuple[int, int]) -> None:
    weight = floats(*sizes).astype(ml_dtypes.bfloat16)
    packed = packing.pack_stacked([Matrix("w", Form.BFLOAT16, 0, *sizes, lambda: (weight,))])
    assert packed.size_in % 32 == 0
    got = unpacked(packed)
    np.testing.assert_array_equal(got[: sizes[0], : sizes[1]], weight.astype(np.float32))
    assert not got[sizes[0] :].any()
    assert not got[:, sizes[1] :].any()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize(("form", "rules"), [(Form.INT4, int4), (Form.UINT4, uint4)])
def test_4_bit_panels_hold_the_numbers_of_the_format(
    form: Form, rules: ModuleType, group: int, sizes: tuple[int, int]
) -> None:
    weight = floats(*sizes)
    parts = rules.pack(weight, group)
    packed = packing.pack_stacked([Matrix("w", form, group, *sizes, lambda: parts)])
    got, want = unpacked(packed), rules.unpack(*parts, group)
    np.testing.assert_allclose(got[: sizes[0], : sizes[1]], want, rtol=2**-11)
    assert not got[sizes[0] :].any()
    assert not got[:, sizes[1] :].any()


@pytest.mark.parametrize(
    ("form", "group", "expected"),
    [
        (Form.FLOAT32, 0, (Form.FLOAT32, 0, 0.0)),
        (Form.BFLOAT16, 0, (Form.BFLOAT16, 0, 0.0)),
        (Form.INT8, 32, (Form.INT8, 32, 0.0)),
        (Form.INT4, 64, (Form.INT8, 64, 0.0)),
        (Form.UINT4, 128, (Form.INT8, 64, 0.0)),
        (Form.INT8, 576, (Form.INT8, 64, 0.0)),
    ],
)
def test_activations_share_a_scale_by_groups_of_at_most_64(
    form: Form, group: int, expected: tuple[Form, int, float]
) -> None:
    matrix = Matrix("w", form, group, 16, 576, lambda: (floats(16, 576),))
    assert matrix.activations == expected


@pytest.mark.parametrize("sizes", SIZES)
def test_int8_panels_hold_the_weight_within_half_a_step(sizes: tuple[int, int]) -> None:
    weight = floats(*sizes)
    got = unpacked(packing.pack_stacked([int8_matrix(weight)]))
    steps = np.repeat(int8.pack(weight, 32)[1], 32, axis=1)[:, : sizes[1]]
    # Half a step of rounding, and 127 steps times the rounding of the scale to 11 bits.
    assert (np.abs(got[: sizes[0], : sizes[1]] - weight) <= steps * (0.5 + 127 * 2.0**-11)).all()
    assert not got[sizes[0] :].any()
    assert not got[:, sizes[1] :].any()


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e6])
def test_weights_whose_scales_half_precision_loses_are_refused(size: float) -> None:
    weight = floats(16, 64) * np.float32(size)
    with pytest.raises(BuildError, match="has weights that int8 can't hold"):
        packing.pack_stacked([int8_matrix(weight)]).read()


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 400.0])
def test_scales_keep_their_bits_over_a_wide_range_of_weights(size: float) -> None:
    weight = floats(16, 64) * np.float32(size)
    got = unpacked(packing.pack_stacked([int8_matrix(weight)]))
    assert np.abs(got - weight).max() < 0.01 * np.abs(weight).max()


def test_stacked_matrices_follow_one_another() -> None:
    parts = [floats(9, 64, seed) for seed in range(3)]
    packed = packing.pack_stacked([float_matrix(part, f"w{i}") for i, part in enumerate(parts)])
    assert packed.name == "w0+w1+w2"
    np.testing.assert_array_equal(unpacked(packed)[:27], np.concatenate(parts))


@pytest.mark.parametrize(("make", "half"), [(float_matrix, 48), (int8_matrix, 64)])
def test_gates_and_factors_alternate_by_16(make: object, half: int) -> None:
    gate, up = floats(40, 64, 1), floats(40, 64, 2)
    packed = packing.pack_gated(make(gate, "g"), make(up, "u"), half)
    got = unpacked(packed).reshape(-1, 2, 16, 64)
    np.testing.assert_allclose(got[:, 0].reshape(half, 64)[:40], gate, atol=0.05)
    np.testing.assert_allclose(got[:, 1].reshape(half, 64)[:40], up, atol=0.05)
    assert not got[:, 1].reshape(half, 64)[40:].any()


def test_biases_of_a_gated_pair_go_the_same_way() -> None:
    gate, up = np.arange(20, dtype=np.float32), 100 + np.arange(20, dtype=np.float32)
    got = packing.interleave_vectors(gate, up, 32).reshape(2, 2, 16)
    np.testing.assert_array_equal(got[:, 0].ravel()[:20], gate)
    np.testing.assert_array_equal(got[:, 1].ravel()[:20], up)


def test_a_vector_is_padded_with_zeros() -> None:
    packed = packing.pack_vector("v", 5, lambda: np.arange(5, dtype=np.float32))
    assert packed.read().view(np.float32).tolist() == [0, 1, 2, 3, 4, *[0] * 11]


@pytest.mark.parametrize("value", [1e9, np.nan])
def test_weights_that_no_scale_holds_are_refused_by_name(value: float) -> None:
    weight = floats(16, 32)
    weight[3, 3] = value
    scales = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)
    numbers = np.zeros(weight.shape, np.int8)
    matrix = Matrix("layer.w", Form.INT8, 32, 16, 32, lambda: (numbers, scales))
    with np.errstate(invalid="ignore"), pytest.raises(BuildError, match=r"layer\.w"):
        packing.pack_stacked([matrix]).read()


def test_a_scale_that_overflows_is_told_by_its_weight_and_by_no_warning() -> None:
    weight = floats(16, 32)
    weight[3, 3] = 3e38
    with pytest.raises(BuildError, match="w has weights that int8 can't hold"):
        packing.pack_stacked([int8_matrix(weight)]).read()
