from typing import Any

import ml_dtypes
import numpy as np
import pytest

from builder.checkpoint.tensors import Tensor, widen
from builder.errors import CheckpointError, UnsupportedError

VALUES = np.array([0.0, -0.0, 1.0, -2.5, 65504.0, 6e-8, 1e-3], np.float32)


def tensor(values: Any, stored: str = "float32") -> Tensor:
    array = np.asarray(values, np.float32)
    return Tensor("w", array.shape, stored, array.nbytes, lambda: array)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [("float32", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)],
)
def test_each_float_type_is_widened_exactly(stored: str, kind: Any) -> None:
    narrow = VALUES.astype(kind)
    wide = widen(np.frombuffer(narrow.tobytes(), np.uint8), "w", stored)
    np.testing.assert_array_equal(wide.view(np.uint32), narrow.astype(np.float32).view(np.uint32))


def test_every_bfloat16_is_widened_to_the_number_it_stands_for() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = widen(bits.view(np.uint8), "w", "bfloat16")
    np.testing.assert_array_equal(wide, bits.view(ml_dtypes.bfloat16).astype(np.float32))


def test_float32_is_not_copied_unless_it_lies_askew() -> None:
    raw = np.zeros(17, np.uint8)
    even, odd = raw[:16], raw[1:]
    assert np.shares_memory(widen(even, "w", "float32"), raw)
    assert widen(odd, "w", "float32").flags.aligned


def test_another_number_type_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="tensor w is stored as I64"):
        widen(np.zeros(8, np.uint8), "w", "I64")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_with_the_tensor(bad: float) -> None:
    with pytest.raises(CheckpointError, match="tensor w holds NaN or infinite"):
        tensor([1.0, bad, 2.0]).read()


def test_infinities_of_both_signs_do_not_cancel() -> None:
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        tensor([np.inf, -np.inf]).read()


def test_finite_numbers_whose_sum_overflows_are_accepted() -> None:
    huge = tensor([3e38, 3e38])
    np.testing.assert_array_equal(huge.read(), np.array([3e38, 3e38], np.float32))
