"""What a commit tells of prompts whose log-probabilities are asked for."""

import pytest

from tests.triton_backend.committing import commit_one, started
from tests.triton_backend.fakes import FakeText
from tests.triton_backend.making import make_sequence
from triton_backend.commit import commit
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.request import TokenLogprobs
from triton_backend.rows import NoToken


@pytest.fixture
def stage() -> FakeText:
    return FakeText()


def test_logprobs_of_a_prompt_are_kept_until_its_first_token_and_told_once(
    stage: FakeText,
) -> None:
    sequence = make_sequence("a", 3, prompt_logprobs=0)
    started(stage, sequence)
    told = {row: TokenLogprobs(-float(row), 1, (), ()) for row in range(2)}
    plan = StepPlan((Scheduled(sequence, 1, 1),))
    assert commit(plan, [NoToken.BROKEN], text_stage=stage, logprobs=told) == []
    plan = StepPlan((Scheduled(sequence, 2, 2),))
    (delta,) = commit(plan, [NoToken.BROKEN, 4], text_stage=stage, logprobs={0: told[1]})
    assert delta.prompt_logprobs == (told[0], told[1])
    assert delta.prompt_token_ids == sequence.request.prompt_token_ids
    later = commit_one(sequence, 5, stage)
    assert (later.prompt_logprobs, later.prompt_token_ids) == ((), ())


def test_a_prompt_of_one_token_is_told_though_nothing_stands_before_it(stage: FakeText) -> None:
    sequence = make_sequence("a", 1, prompt_logprobs=0)
    started(stage, sequence)
    delta = commit_one(sequence, 5, stage)
    assert (delta.prompt_logprobs, len(delta.prompt_token_ids)) == ((), 1)


@pytest.mark.parametrize("asked", [{}, {"prompt_logprobs": 0}])
def test_only_the_first_choice_tells_the_prompt_and_only_if_asked(
    asked: dict[str, int], stage: FakeText
) -> None:
    sequence = make_sequence("a", 1, **asked)
    sequence.choice = len(asked)
    started(stage, sequence)
    assert commit_one(sequence, 5, stage).prompt_token_ids == ()
