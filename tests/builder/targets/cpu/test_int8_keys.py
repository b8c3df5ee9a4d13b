"""Keys in an int8 cache go through a Hadamard transform before they are rounded."""

import numpy as np
import pytest

from plugins.paged_attention.reference import round_keys_to_int8, round_to_int8


@pytest.mark.parametrize("size", [16, 20, 64, 80, 96, 128, 256])
def test_what_stands_out_costs_the_other_numbers_less(size: int) -> None:
    rng = np.random.default_rng(size)
    keys = rng.normal(size=(200, size))
    keys[:, 3] *= 40
    error = np.abs(round_keys_to_int8(keys) - keys).mean()
    assert error < 0.6 * np.abs(round_to_int8(keys) - keys).mean()


def test_rounding_stays_within_half_a_step_of_the_transformed_key() -> None:
    keys = np.random.default_rng(0).normal(size=(50, 64))
    error = np.linalg.norm(round_keys_to_int8(keys) - keys, axis=-1)
    most = np.linalg.norm(keys, axis=-1) / 127 / 2 * np.sqrt(64)  # no number is above the norm
    assert (error < most).all()
    np.testing.assert_array_equal(round_keys_to_int8(np.zeros((2, 64))), np.zeros((2, 64)))
