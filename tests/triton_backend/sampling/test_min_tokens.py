"""Ids that would end an answer too early are as if their logits were minus infinity."""

import numpy as np
import pytest

from builder.artifact.step import RowAsks, StepResult
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from triton_backend.sampling.min_tokens import banned_ids, without_banned

LOGITS = np.array([[5, 1, 3, 2], [0, 9, 8, 7], [4, 3, 2, 1]], np.float32)


def answers(logits: np.ndarray, *temperatures: float) -> tuple[StepResult, RowAsks]:
    asks = RowAsks(2, np.array(temperatures, np.float32))
    return result_from_rows(logits, asks), asks


def assert_same(result: StepResult, expected: StepResult) -> None:
    for name in ("argmax", "candidate_ids", "candidate_logits", "logsumexp"):
        assert getattr(result, name).tolist() == getattr(expected, name).tolist(), name
    for row in range(len(expected.argmax)):
        assert result.full_row(row).tolist() == expected.full_row(row).tolist()


def test_ids_are_banned_until_the_answer_is_long_enough() -> None:
    sequence = make_sequence("a", 3, min_tokens=2, stop_token_ids=(7,))
    banned = []
    for _ in range(4):
        banned.append(banned_ids([make_sequence("b", 1), sequence]))
        sequence.token_ids.append(0)
    assert banned == [{1: {7}}, {1: {7}}, {}, {}]


def test_without_stopping_ids_nothing_is_banned() -> None:
    assert banned_ids([make_sequence("a", 3, min_tokens=2)]) == {}


def test_drawn_rows_are_answered_as_if_the_logits_were_minus_infinity() -> None:
    result, asks = answers(LOGITS, 0.5, 0.7, 1.0)
    edited = LOGITS.copy()
    edited[0, [0, 2]] = edited[2, 3] = -np.inf
    banned = {0: frozenset({0, 2}), 2: frozenset({3})}
    assert_same(without_banned(result, asks, banned), result_from_rows(edited, asks))


def test_the_rows_of_the_engine_stay_as_they_are() -> None:
    logits = LOGITS.copy()
    result, asks = answers(logits, 1, 1, 1)
    without_banned(result, asks, {0: frozenset({0})})
    assert (logits == LOGITS).all()


@pytest.mark.parametrize(("banned", "argmax"), [({1}, 0), ({0}, 2), ({0, 2}, 3)])
def test_a_greedy_row_takes_the_largest_that_is_left(banned: set[int], argmax: int) -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    assert without_banned(result, asks, {0: frozenset(banned)}).argmax.tolist() == [argmax, 1, 0]


def test_a_greedy_row_whose_arg_max_is_allowed_needs_no_full_row() -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    assert without_banned(result, asks, {0: frozenset({1}), 1: frozenset({0})}) is result


def test_a_ban_that_holds_nearly_all_of_the_mass_leaves_an_exact_normaliser() -> None:
    logits = np.array([[100, 1, 0]], np.float32)
    result, asks = answers(logits, 1.0)
    left = without_banned(result, asks, {0: frozenset({0})})
    assert left.logsumexp[0] == pytest.approx(np.log(np.e + 1))
