"""Samples: what is refused, what is warned of, and how they are packed without padding."""

import numpy as np
import pytest

from builder.errors import UserError
from builder.quant.calibration.samples import ROWS, Samples, batches, check_samples


def samples(*rows: tuple[int, ...], control: frozenset[int] = frozenset()) -> Samples:
    return Samples("mine.txt", "0" * 64, rows, control)


def test_rows_are_full_and_positions_start_again_with_each_sample() -> None:
    (batch, rest) = batches(samples((1, 2, 3), (4, 5), (6, 7, 8, 9)), length=4)
    assert batch.token_ids.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert batch.positions.tolist() == [[0, 1, 2, 0], [0, 0, 1, 2]]
    assert rest.token_ids.tolist() == [[9]]
    assert rest.positions.tolist() == [[0]]


def test_every_token_is_run_once_and_nothing_else_is() -> None:
    random = np.random.default_rng(0)
    rows = tuple(tuple(map(int, random.integers(0, 99, size))) for size in (5, 1, 30, 0, 12, 7))
    found = list(batches(samples(*rows), length=8))
    assert [token for batch in found for token in batch.token_ids.ravel()] == [
        token for row in rows for token in row
    ]
    assert max(len(batch.token_ids) for batch in found) <= ROWS
    assert all(batch.token_ids.dtype == batch.positions.dtype == np.int32 for batch in found)


def test_samples_that_fill_their_rows_leave_no_rest() -> None:
    assert [batch.token_ids.shape for batch in batches(samples((1,) * 16), length=4)] == [(4, 4)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (samples(), r"mine\.txt has no sample to calibrate with"),
        (samples((7, 8), (7,), control=frozenset({7, 8})), "3 tokens .* control tokens or padding"),
        (samples((1, 300)), "has token 300, and the model has 259"),
    ],
    ids=["none", "control alone", "of another model"],
)
def test_samples_that_say_nothing_are_refused(given: Samples, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_samples(given, 259)


def test_a_sample_of_four_tokens_is_warned_of_with_the_number_that_would_do() -> None:
    given = samples((1, 2, 3, 4, 5), control=frozenset({5}))
    check_samples(given, 259)
    assert given.warning is not None
    assert given.warning.startswith("calibration has 4 tokens of text, fewer than 2048")
    assert samples((1,) * 2048).warning is None
