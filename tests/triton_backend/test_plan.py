"""Which rows a share has."""

import pytest

from tests.triton_backend.making import make_sequence
from triton_backend.plan import Scheduled, StepPlan


def rows(share: Scheduled) -> list[tuple[int, tuple[int, ...], int]]:
    return [(row.num_known, row.drafted, row.num_behind) for row in share.rows]


@pytest.mark.parametrize(
    ("computed", "tokens", "num_rows", "drafted", "expected"),
    [
        (0, 5, 0, (), []),
        (0, 9, 1, (), [(9, (), 0)]),
        (2, 3, 3, (), [(3, (), 6), (4, (), 5), (5, (), 4)]),  # inside a prompt
        (7, 2, 2, (), [(8, (), 1), (9, (), 0)]),  # its end
        (8, 3, 3, (20, 21), [(9, (), 0), (10, (20,), 0), (11, (20, 21), 0)]),
    ],
)
def test_rows_know_the_tokens_before_them(
    computed: int,
    tokens: int,
    num_rows: int,
    drafted: tuple[int, ...],
    expected: list[tuple[int, tuple[int, ...], int]],
) -> None:
    sequence = make_sequence("a", 9)
    sequence.num_computed = computed
    assert rows(Scheduled(sequence, tokens, num_rows, drafted)) == expected


def test_the_rows_of_a_plan_are_those_of_its_shares_in_order() -> None:
    a, b, c = make_sequence("a", 1), make_sequence("b", 9), make_sequence("c", 2)
    plan = StepPlan((Scheduled(a, 1, 1), Scheduled(b, 4, 0), Scheduled(c, 2, 1)))
    assert [row.sequence for row in plan.rows] == [a, c]


def test_guesses_are_not_known_tokens() -> None:
    assert Scheduled(make_sequence("a", 1), 3, 3, (5, 6)).num_known_tokens == 1
