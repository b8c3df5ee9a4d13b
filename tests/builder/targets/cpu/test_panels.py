"""Panels are read back as what was packed, whatever the form and however much of them is padding."""

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builder.checkpoint.groups import num_groups
from builder.targets.cpu import panels
from builder.targets.cpu.panels import PANEL, Parts, padded
from builder.targets.cpu.plan import Form

GROUPS = {
    Form.FLOAT32: (0,),
    Form.BFLOAT16: (0,),
    Form.INT8: (32, 64, 96),
    Form.INT4: (32, 64, 128),
    Form.UINT4: (32, 64, 128),
}
CASES = [(form, group) for form, groups in GROUPS.items() for group in groups]


def halves(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw scales that half precision holds."""
    return random.uniform(0.01, 1, shape).astype(np.float16).astype(np.float32)


def drawn(form: Form, group: int, shape: tuple[int, int], seed: int) -> Parts:
    """Draw a weight of a form, each of its numbers possible."""
    random = np.random.default_rng(seed)
    scales = (shape[0], num_groups(shape[1], group))
    if form == Form.INT8:
        return random.integers(-128, 128, shape, np.int8), halves(random, scales)
    if form == Form.INT4:
        return random.integers(-8, 8, shape, np.int8), halves(random, scales)
    if form == Form.UINT4:
        numbers, zeros = (random.integers(0, 16, size, np.uint8) for size in (shape, scales))
        return numbers, halves(random, scales), zeros
    floats = random.standard_normal(shape, np.float32)
    return (floats if form == Form.FLOAT32 else floats.astype(ml_dtypes.bfloat16),)


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
