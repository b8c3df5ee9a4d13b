"""Edited rows are answered as if the executor had given the edited logits, and only those."""

import numpy as np
import pytest

from builder.artifact.step import RowAsks, StepResult
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from triton_backend.rows import LogitRow
from triton_backend.sampling.ban import Ban
from triton_backend.sampling.edits import apply_edits, edits_of
from triton_backend.sampling.logit_bias import Biases, biases_of
from triton_backend.sampling.min_tokens import min_tokens_of

LOGITS = np.array([[5, 1, 3, 2], [0, 9, 8, 7], [4, 3, 2, 1]], np.float32)


def answers(logits: np.ndarray, *temperatures: float) -> tuple[StepResult, RowAsks]:
    asks = RowAsks(2, np.array(temperatures, np.float32))
    return result_from_rows(logits, asks), asks


def assert_same(edited: tuple[StepResult, np.ndarray], expected: StepResult) -> None:
    result, slack = edited
    for name in ("argmax", "candidate_ids", "candidate_logits"):
        assert getattr(result, name).tolist() == getattr(expected, name).tolist(), name
    assert (np.abs(result.logsumexp - expected.logsumexp) <= slack).all()
    for row in range(len(expected.argmax)):
        assert result.full_row(row).tolist() == expected.full_row(row).tolist()
    rows = [*range(len(expected.argmax))] * 2
    for told, right in zip(result.likeliest(rows, 3), expected.likeliest(rows, 3), strict=True):
        assert told.tolist() == right.tolist()


def test_drawn_rows_are_answered_as_if_the_executor_had_given_them() -> None:
    result, asks = answers(LOGITS, 0.5, 0.7, 1.0)
    edited = LOGITS.copy()
    edited[0, [0, 2]] = edited[2, 3] = -np.inf
    edits = {0: [Ban({0}), Ban({2})], 2: [Ban({3})]}
    assert_same(apply_edits(result, asks, edits), result_from_rows(edited, asks))


def test_the_rows_of_the_engine_stay_as_they_are() -> None:
    logits = LOGITS.copy()
    result, asks = answers(logits, 1, 1, 1)
    apply_edits(result, asks, {0: [Ban({0})]})
    assert (logits == LOGITS).all()


@pytest.mark.parametrize(("banned", "argmax"), [({1}, 0), ({0}, 2), ({0, 2}, 3)])
def test_a_greedy_row_takes_the_largest_that_is_left(banned: set[int], argmax: int) -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    assert apply_edits(result, asks, {0: [Ban(banned)]})[0].argmax.tolist() == [argmax, 1, 0]


def test_a_greedy_row_whose_arg_max_every_edit_keeps_needs_no_full_row() -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    kept = {0: [Ban({1}), Biases(((0, 2.0),))], 1: [Ban({0})]}
    assert apply_edits(result, asks, kept)[0] is result


def test_one_edit_that_does_not_keep_it_is_enough() -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    edits = {0: [Ban({1}), Biases(((2, 2.5),))]}
    assert apply_edits(result, asks, edits)[0].argmax[0] == 2


def test_edits_are_applied_in_their_order() -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    edits = {0: [Biases(((1, 50.0),)), Ban({1}), Biases(((1, 50.0),))]}
    assert apply_edits(result, asks, edits)[0].argmax[0] == 0


def test_a_ban_that_holds_nearly_all_of_the_mass_leaves_an_exact_normaliser() -> None:
    logits = np.array([[100, 1, 0]], np.float32)
    result, asks = answers(logits, 1.0)
    left, _ = apply_edits(result, asks, {0: [Ban({0})]})
    assert left.logsumexp[0] == pytest.approx(np.log(np.e + 1))


def test_a_row_of_which_nothing_is_left_gives_no_id() -> None:
    result, asks = answers(LOGITS, 0, 0, 0)
    assert apply_edits(result, asks, {1: [Ban({0, 1, 2, 3})]})[0].argmax.tolist() == [0, -1, 0]


def test_a_greedy_row_that_is_no_number_stays_one() -> None:
    logits = np.array([[np.nan, 1, 2]], np.float32)
    result, asks = answers(logits, 0)
    assert apply_edits(result, asks, {0: [Ban({2})]})[0].argmax.tolist() == [-1]


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": ((1, 1.0),)},
        {"bad_words": ((1,),)},
        {"min_tokens": 1},
        {"logits_processors": ("x",)},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.1},
    ],
)
def test_links_are_asked_for_every_row_that_has_one_on(params: dict[str, object]) -> None:
    asked = []

    def link(row: LogitRow) -> None:
        asked.append(row)

    rows = [LogitRow(make_sequence("off", 2)), LogitRow(make_sequence("on", 2, **params))]
    assert edits_of([*rows, LogitRow(rows[1].sequence, (), 1)], [link]) == {}
    assert asked == [rows[1]]


def test_the_edits_of_a_row_come_in_the_order_of_the_links() -> None:
    sequence = make_sequence("a", 2, logit_bias=((1, 1.0),), min_tokens=1, stop_token_ids=(7,))
    edits = edits_of([LogitRow(sequence)], [min_tokens_of, biases_of])
    assert edits == {0: [Ban(frozenset({7})), Biases(((1, 1.0),))]}
