"""Packed weights: what is read back from panels is what went in."""

import numpy as np
import pytest

from builder.errors import BuildError
from builder.quant import int8
from builder.targets.cpu import packing
from builder.targets.cpu.packing import SCALE_FACTOR, Matrix, Packed
from builder.targets.cpu.plan import Form
from tests.builder.targets.cpu.plan_runner import Weight

SIZES = [(16, 32), (1, 32), (17, 33), (48, 576), (100, 90)]


def floats(size_out: int, size_in: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((size_out, size_in), np.float32)


def int8_matrix(weight: np.ndarray, name: str = "w") -> Matrix:
    return Matrix(name, Form.INT8, 32, *weight.shape, lambda: int8.pack(weight))


def float_matrix(weight: np.ndarray, name: str = "w") -> Matrix:
    none = np.zeros(0, np.float32)
    return Matrix(name, Form.FLOAT32, 0, *weight.shape, lambda: (weight, none))


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
def test_int8_panels_hold_the_weight_within_half_a_step(sizes: tuple[int, int]) -> None:
    weight = floats(*sizes)
    got = unpacked(packing.pack_stacked([int8_matrix(weight)]))
    steps = np.repeat(int8.pack(weight)[1], 32, axis=1)[:, : sizes[1]]
    # Half a step of rounding, and 127 steps times the rounding of the scale to 11 bits.
    assert (np.abs(got[: sizes[0], : sizes[1]] - weight) <= steps * (0.5 + 127 * 2.0**-11)).all()
    assert not got[sizes[0] :].any()
    assert not got[:, sizes[1] :].any()


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


@pytest.mark.parametrize("make", [float_matrix, int8_matrix])
def test_gates_and_factors_alternate_by_16(make: object) -> None:
    gate, up = floats(40, 64, 1), floats(40, 64, 2)
    packed = packing.pack_gated(make(gate, "g"), make(up, "u"))
    half = packing.gated_size(make(gate))
    assert half == (64 if make is int8_matrix else 48)
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
    matrix = Matrix("layer.w", Form.INT8, 32, 16, 32, lambda: (weight.astype(np.int8), scales))
    with np.errstate(invalid="ignore"), pytest.raises(BuildError, match=r"layer\.w"):
        packing.pack_stacked([matrix]).read()
