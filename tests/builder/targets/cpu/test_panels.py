"""Panels are read back as what was packed, whatever the form and however much of them is padding."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.checkpoint.groups import num_groups
from builder.quant.floats import E2M1, E4M3, E8M0
from builder.targets.cpu import panels
from builder.targets.cpu.panels import PANEL, Parts, padded
from builder.targets.cpu.plan import Form

GROUPS = {
    Form.FLOAT32: (0,),
    Form.BFLOAT16: (0,),
    Form.INT8: (32, 64, 96),
    Form.INT4: (32, 64, 128),
    Form.UINT4: (32, 64, 128),
    Form.E4M3: (0, 16, 128),
    Form.E2M1: (16, 32),
    Form.WIDENED_INT8: (0, 128),
}
CASES = [(form, group) for form, groups in GROUPS.items() for group in groups]


Random = np.random.Generator
Draw = Callable[[Random, tuple[int, int]], np.ndarray]


def halves(random: Random, shape: tuple[int, int]) -> np.ndarray:
    """Draw scales that half precision holds."""
    return random.uniform(0.01, 1, shape).astype(np.float16).astype(np.float32)


def floats(random: Random, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def narrow(random: Random, shape: tuple[int, int]) -> np.ndarray:
    return floats(random, shape).astype(ml_dtypes.bfloat16)


def integers(low: int, high: int, kind: type) -> Draw:
    return lambda random, shape: random.integers(low, high, shape, kind)


def every(kind: type) -> Draw:
    """Draw bits of a type of 8 bits or fewer, NaNs left out."""
    values = np.arange(16 if kind is E2M1 else 256, dtype=np.uint8).view(kind)
    return lambda random, shape: random.choice(values[~np.isnan(values.astype(np.float32))], shape)


NIBBLES = integers(0, 16, np.uint8)
DRAWS: dict[Form, tuple[Draw, ...]] = {
    Form.FLOAT32: (floats,),
    Form.BFLOAT16: (narrow,),
    Form.INT8: (integers(-128, 128, np.int8), halves),
    Form.INT4: (integers(-8, 8, np.int8), halves),
    Form.UINT4: (NIBBLES, halves, NIBBLES),
    Form.E4M3: (every(E4M3), floats),
    Form.WIDENED_INT8: (integers(-128, 128, np.int8), floats),
}
"""How the parts of each form are drawn, so that each of their numbers is possible."""
DRAWS_OF_E2M1 = {16: (every(E2M1), every(E4M3), floats), 32: (every(E2M1), every(E8M0))}


def drawn(form: Form, group: int, shape: tuple[int, int], seed: int) -> Parts:
    """Draw a weight."""
    size_out, size_in = shape
    draws = DRAWS_OF_E2M1[group] if form == Form.E2M1 else DRAWS[form]
    shapes = (shape, (size_out, num_groups(size_in, group)), (size_out, 1))
    if form == Form.UINT4:
        shapes = (*shapes[:2], shapes[1])
    random = np.random.default_rng(seed)
    return tuple(draw(random, size) for draw, size in zip(draws, shapes, strict=False))


@given(st.sampled_from(CASES), st.integers(1, 40), st.integers(1, 200), st.integers(0, 99))
def test_what_is_read_back_is_what_was_packed(
    case: tuple[Form, int], size_out: int, size_in: int, seed: int
) -> None:
    form, group = case
    parts = drawn(form, group, (size_out, size_in), seed)
    data = panels.to_panels(form, group, parts)
    width = panels.padded_in(form, group, size_in)
    assert data.nbytes == padded(size_out, PANEL) // PANEL * panels.panel_bytes(form, group, width)
    got = panels.from_panels(form, group, data, size_out, size_in)
    for part, want in zip(got, parts, strict=True):
        assert part.dtype == want.dtype
        assert part.tobytes() == want.tobytes()
    np.testing.assert_array_equal(panels.to_panels(form, group, got), data)


@pytest.mark.parametrize(
    ("form", "group", "bits"),
    [
        (Form.E4M3, 0, 8 + 32 / 512),
        (Form.E4M3, 128, 8 + 32 / 128),
        (Form.WIDENED_INT8, 0, 8 + 32 / 512),
        (Form.E2M1, 16, 4 + 8 / 16 + 32 / 512),
        (Form.E2M1, 32, 4 + 8 / 32),
    ],
)
def test_a_widened_weight_takes_its_bits_and_those_of_its_scales(
    form: Form, group: int, bits: float
) -> None:
    assert panels.panel_bytes(form, group, 512) == PANEL * 512 * bits / 8


@pytest.mark.parametrize(
    ("form", "group", "part"),
    [
        (Form.E4M3, 0, 0),
        (Form.E4M3, 0, 1),
        (Form.E2M1, 16, 1),
        (Form.E2M1, 16, 2),
        (Form.E2M1, 32, 1),
    ],
)
def test_what_is_no_number_is_refused(form: Form, group: int, part: int) -> None:
    parts = drawn(form, group, (16, 64), 0)
    parts[part][3, 0] = np.nan
    with pytest.raises(ValueError, match="is none"):
        panels.to_panels(form, group, parts)
