"""What is left of a step, and what a sequence gets of it."""

import pytest

from tests.triton_backend.making import make_sequence
from triton_backend.allowance import Allowance
from triton_backend.plan import Scheduled


@pytest.mark.parametrize(
    ("tokens", "rows", "prompt_tokens", "expected"),
    [
        (20, 9, 20, (10, 1)),  # all of it, with the row of the last token
        (7, 9, 20, (7, 0)),  # cut by tokens
        (20, 9, 4, (4, 0)),  # cut by what prompts may have
        (20, 9, 0, (0, 0)),
    ],
)
def test_a_prompt_gets_what_is_left(
    tokens: int, rows: int, prompt_tokens: int, expected: tuple[int, int]
) -> None:
    sequence, left = make_sequence("a", 10), Allowance(tokens, rows, prompt_tokens)
    share = left.share(sequence)
    assert share == Scheduled(sequence, *expected)
    taken, num_rows = expected
    assert left == Allowance(tokens - taken, rows - num_rows, prompt_tokens - taken)


def test_a_single_token_takes_nothing_of_what_prompts_may_have() -> None:
    sequence, left = make_sequence("a", 10), Allowance(5, 5, 0)
    sequence.num_computed = 9
    assert left.share(sequence) == Scheduled(sequence, 1, 1)
    assert left == Allowance(4, 4, 0)


@pytest.mark.parametrize(
    ("computed", "told", "rows", "expected"),
    [
        (0, 0, 99, (10, 10)),
        (0, 0, 4, (4, 4)),
        (4, 4, 4, (4, 4)),
        (0, 4, 4, (8, 4)),  # computed again after a preemption, but told already
        (0, 9, 4, (10, 1)),
    ],
)
def test_a_prompt_with_logprobs_is_cut_by_rows(
    computed: int, told: int, rows: int, expected: tuple[int, int]
) -> None:
    sequence = make_sequence("a", 10, prompt_logprobs=0)
    sequence.num_computed = computed
    sequence.prompt_logprobs = [None] * told  # type: ignore[list-item]
    assert Allowance(99, rows, 99).share(sequence) == Scheduled(sequence, *expected)


@pytest.mark.parametrize(
    ("tokens", "rows", "is_spent"), [(1, 1, False), (0, 1, True), (1, 0, True)]
)
def test_without_tokens_or_rows_it_is_spent(tokens: int, rows: int, is_spent: bool) -> None:
    assert Allowance(tokens, rows, 0).is_spent is is_spent


def test_drafts_take_a_token_and_a_row_each() -> None:
    sequence, left = make_sequence("a", 1), Allowance(9, 8, 7)
    share = left.extend(left.share(sequence), (3, 4))
    assert share == Scheduled(sequence, 3, 3, (3, 4))
    assert left == Allowance(6, 5, 7)
