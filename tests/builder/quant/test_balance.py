"""Powers of two that move from smoothed weights to rows: nothing that is computed changes, and scales fit half precision."""

import numpy as np
import pytest

from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.rows import TENSOR, RowScales
from builder.quant.balance import balanced
from builder.targets.cpu import panels
from builder.targets.cpu.plan import Form
from plugins.quantize.reference import quantize_fixed

DRAW = np.random.default_rng(0)
NUMBERS = DRAW.integers(-127, 128, (16, 64)).astype(np.int8)
SCALES = DRAW.uniform(20, 150, (16, 1)).astype(np.float32)
FACTORS = np.exp2(DRAW.uniform(-18, -3, 64)).astype(np.float32)
FIXED = np.float32(1 / 127)
ROWS = (DRAW.normal(size=(8, 64)) / FACTORS).astype(np.float32)


def weight(row_scales: RowScales) -> QuantizedWeight:
    return QuantizedWeight(
        "w", "int8", 0, (16, 64), "float32", 0, lambda: (NUMBERS, SCALES), TENSOR, row_scales
    )


def smoothed(factors: np.ndarray = FACTORS) -> QuantizedWeight:
    return weight(RowScales(lambda: FIXED, lambda: factors))


def product(parts: Parts, row_scales: RowScales) -> np.ndarray:
    assert row_scales.fixed is not None
    assert row_scales.factors is not None
    numbers, scales = parts
    fixed = row_scales.fixed()
    rows, _ = quantize_fixed(ROWS * row_scales.factors(), 64, float(fixed))
    return (rows.astype(np.int64) @ numbers.T.astype(np.int64)) * (fixed * scales.T)


def test_what_is_computed_stays_the_same_to_the_bit() -> None:
    read, row_scales = balanced(smoothed())
    wanted = product(smoothed().read(), smoothed().row_scales)
    np.testing.assert_array_equal(product(read(), row_scales), wanted)


def test_factors_begin_at_1() -> None:
    _, row_scales = balanced(smoothed())
    assert row_scales.factors is not None
    assert 1 <= row_scales.factors().min() < 2


def test_scales_fit_half_precision_that_did_not() -> None:
    read, _ = balanced(smoothed())
    numbers, scales = read()
    assert panels.to_panels(Form.INT8, 64, (numbers, scales)).size
    with pytest.raises(ValueError, match="too large"):
        panels.to_panels(Form.INT8, 64, (NUMBERS, SCALES))


def test_factors_of_0_alone_change_nothing() -> None:
    read, row_scales = balanced(smoothed(np.zeros(64, np.float32)))
    assert row_scales.fixed is not None
    assert row_scales.fixed() == FIXED
    np.testing.assert_array_equal(read()[1], SCALES)


@pytest.mark.parametrize(
    "row_scales", [RowScales(), RowScales(lambda: FIXED), RowScales(factors=lambda: FACTORS)]
)
def test_weights_that_nothing_can_move_from_stay_as_they_are(row_scales: RowScales) -> None:
    plain = weight(row_scales)
    assert balanced(plain) == (plain.read, row_scales)
