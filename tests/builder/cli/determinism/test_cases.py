"""The requests of the proof."""

import pytest

from builder.cli.determinism.cases import LONGEST_PROMPT, make_cases, with_choices
from builder.errors import UserError
from tests.triton_backend.making import make_limits

IDS = tuple(range(50, 150))


def cases(count: int = 12, **limits: int):
    return make_cases(IDS, make_limits(**limits), count=count, max_tokens=10, block_size=16)


def test_lengths_differ_and_stay_within_bounds() -> None:
    lengths = [len(case.prompt_token_ids) for case in cases()]
    assert len(set(lengths)) > 8
    assert min(lengths) >= 1
    assert max(lengths) <= LONGEST_PROMPT


def test_every_prompt_and_answer_fits_a_short_limit() -> None:
    for case in cases(max_seq_len=45):
        assert len(case.prompt_token_ids) + 10 <= 45


def test_half_are_greedy_and_each_drawn_one_has_a_seed_of_its_own() -> None:
    greedy = [case for case in cases() if case.params.is_greedy]
    seeds = [case.params.seed for case in cases() if not case.params.is_greedy]
    assert len(greedy) == 6
    assert None not in seeds
    assert len(set(seeds)) == 6


def test_every_third_prompt_begins_alike_up_to_the_middle_of_a_block() -> None:
    first, second = (case.prompt_token_ids for case in cases()[3:7:3])
    assert first[:24] == second[:24]
    assert first[:32] != second[:32]


def test_all_ask_for_logprobs_and_go_on_after_end_ids() -> None:
    assert all(case.params.logprobs and case.params.ignore_eos for case in cases())


def test_limits_without_room_are_refused() -> None:
    with pytest.raises(UserError, match="leave 31 of max_seq_len 41 for prompts"):
        cases(max_seq_len=41)


def test_choices_change_nothing_else() -> None:
    case = cases()[1]
    assert with_choices(with_choices(case, 3), 1) == case
    assert with_choices(case, 3).params.num_choices == 3
