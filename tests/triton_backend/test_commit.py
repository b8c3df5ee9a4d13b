"""What a step's tokens do to answers: they grow, they end, and they fail alone."""

import logging
from typing import Any

import pytest

from tests.triton_backend.committing import commit_one, started
from tests.triton_backend.fakes import FakeText
from tests.triton_backend.making import make_sequence
from triton_backend.commit import commit, cut_off
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.request import Delta, FinishReason, TokenLogprobs
from triton_backend.rows import Drawn, NoToken
from triton_backend.sequence import Sequence
from triton_backend.text import TextStage

QUOTE = "words of an answer"


class BrokenText(FakeText):
    """Fails for one request, with a message that quotes the answer."""

    def extend(self, answer_id, token_ids):
        if answer_id == ("bad", 0):
            raise ValueError(QUOTE)
        return super().extend(answer_id, token_ids)

    def finish(self, answer_id):
        if answer_id == ("bad", 0):
            raise KeyError(QUOTE)
        return super().finish(answer_id)


@pytest.fixture
def stage() -> FakeText:
    return FakeText()


def test_a_token_and_its_text_are_told(stage: FakeText) -> None:
    sequence = make_sequence("a", 3)
    started(stage, sequence)
    assert commit_one(sequence, 2, stage) == Delta(
        request_id="a",
        token_ids=(2,),
        text="c",
        finish_reason=None,
        stop_reason=None,
        num_prompt_tokens=3,
        num_generated_tokens=1,
    )
    assert (sequence.num_computed, sequence.num_pending) == (3, 1)
    assert sequence.token_ids.tolist() == [0, 1, 2, 2]


def test_a_chunk_counts_as_computed_and_tells_nothing(stage: FakeText) -> None:
    sequence = make_sequence("a", 9)
    plan = StepPlan((Scheduled(sequence, 4, 0),), ())
    assert commit(plan, [], text_stage=stage) == []
    assert (sequence.num_computed, sequence.num_known) == (4, 9)


def test_tokens_go_to_the_sequences_with_a_row(stage: FakeText) -> None:
    a, b, c = make_sequence("a", 1), make_sequence("b", 9), make_sequence("c", 2)
    started(stage, a, b, c)
    plan = StepPlan((Scheduled(a, 1, 1), Scheduled(b, 4, 0), Scheduled(c, 2, 1)), ())
    deltas = commit(plan, [5, 6], text_stage=stage)
    assert [(delta.request_id, delta.token_ids) for delta in deltas] == [("a", (5,)), ("c", (6,))]


def test_a_stopping_id_ends_the_answer_and_gives_no_text(stage: FakeText) -> None:
    sequence = make_sequence("a", 3, stop_token_ids=(7,), stop=("xyz",))
    started(stage, sequence)
    assert commit_one(sequence, 1, stage).text == ""  # held back
    delta = commit_one(sequence, 7, stage)
    assert (delta.token_ids, delta.text) == ((7,), "b")
    assert (delta.finish_reason, delta.stop_reason) == (FinishReason.STOP, 7)
    assert delta.num_generated_tokens == 2
    assert not stage.live


def test_a_stop_string_ends_the_answer_before_it(stage: FakeText) -> None:
    sequence = make_sequence("a", 3, stop=("cd",))
    started(stage, sequence)
    texts = [commit_one(sequence, token_id, stage).text for token_id in (1, 2)]
    delta = commit_one(sequence, 3, stage)
    assert [*texts, delta.text] == ["", "b", ""]
    assert (delta.finish_reason, delta.stop_reason) == (FinishReason.STOP, "cd")
    assert delta.token_ids == (3,)
    assert not stage.live


def test_the_last_token_allowed_ends_the_answer_with_the_text_held_back(stage: FakeText) -> None:
    sequence = make_sequence("a", 3, stop=("xyz",))
    sequence.max_known = 5
    started(stage, sequence)
    assert commit_one(sequence, 1, stage).finish_reason is None
    delta = commit_one(sequence, 2, stage)
    assert (delta.finish_reason, delta.stop_reason) == (FinishReason.LENGTH, None)
    assert delta.text == "bc"


@pytest.mark.parametrize("params", [{"stop_token_ids": (2,)}, {"stop": ("c",)}])
def test_a_stop_at_the_last_token_allowed_is_a_stop(stage: FakeText, params: dict) -> None:
    sequence = make_sequence("a", 3, **params)
    sequence.max_known = 4
    started(stage, sequence)
    assert commit_one(sequence, 2, stage).finish_reason == FinishReason.STOP


def test_logits_that_are_no_numbers_end_their_answer_alone(stage: FakeText) -> None:
    a, b = make_sequence("a", 1), make_sequence("b", 1)
    started(stage, a, b)
    plan = StepPlan((Scheduled(a, 1, 1), Scheduled(b, 1, 1)), ())
    failed, fine = commit(plan, [NoToken.BROKEN, 4], text_stage=stage)
    assert (failed.finish_reason, failed.token_ids) == (FinishReason.ERROR, ())
    assert failed.error == "the engine gave logits that are not finite numbers."
    assert (fine.finish_reason, fine.token_ids) == (None, (4,))
    assert set(stage.live) == {("b", 0)}


def test_what_a_request_leaves_no_token_for_ends_as_its_mistake_and_names_its_fields(
    stage: FakeText,
) -> None:
    a = make_sequence("a", 1, min_tokens=2, logit_bias=((5, -100.0),), bad_words=((6,),))
    started(stage, a)
    assert commit_one(a, 4, stage).finish_reason is None
    delta = commit_one(a, NoToken.NOTHING_LEFT, stage)
    assert (delta.finish_reason, delta.token_ids) == (FinishReason.INVALID, ())
    assert delta.error == (
        "logit_bias with bad_words with min_tokens leaves no token to go on with"
        " after 1 generated tokens; relax it."
    )
    assert not stage.live


def test_what_a_processor_broke_is_not_said_to_be_the_engines(stage: FakeText) -> None:
    a = make_sequence("a", 1)
    started(stage, a)
    delta = commit_one(a, NoToken.BROKEN_BY_PROCESSOR, stage)
    assert delta.finish_reason == FinishReason.ERROR
    assert delta.error == "the logits processors left logits that are not finite numbers."


def test_a_failing_text_stage_ends_its_answer_alone_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = BrokenText()
    bad, good = make_sequence("bad", 1), make_sequence("good", 1)
    started(stage, bad, good)
    plan = StepPlan((Scheduled(bad, 1, 1), Scheduled(good, 1, 1)), ())
    failed, fine = commit(plan, [3, 4], text_stage=stage)
    assert failed.finish_reason == FinishReason.ERROR
    assert failed.error == "turning tokens into text failed with ValueError."
    assert (failed.token_ids, failed.num_generated_tokens) == ((), 0)
    assert (fine.finish_reason, fine.text) == (None, "e")
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "ValueError" in caplog.text
    assert "test_commit.py" in caplog.text
    assert QUOTE not in caplog.text


def test_a_cut_off_answer_drops_the_text_held_back(stage: FakeText) -> None:
    sequence = make_sequence("a", 3, stop=("xyz",))
    started(stage, sequence)
    commit_one(sequence, 1, stage)
    delta = cut_off(sequence, FinishReason.CANCELLED, stage)
    assert (delta.text, delta.token_ids, delta.error) == ("", (), None)
    assert (delta.finish_reason, delta.num_generated_tokens) == (FinishReason.CANCELLED, 1)
    assert not stage.live


def commit_run(
    sequence: Sequence, drafted: tuple[int, ...], drawn: list[Drawn], stage: TextStage
) -> Delta:
    """Commit a step of the one pending token of a sequence and drafts behind it."""
    share = Scheduled(sequence, 1 + len(drafted), 1 + len(drafted), drafted)
    (delta,) = commit(StepPlan((share,)), drawn, text_stage=stage)
    return delta


def almost_computed(stage: TextStage, **params: Any) -> Sequence:
    sequence = make_sequence("a", 3, **params)
    started(stage, sequence)
    sequence.num_computed = 2
    return sequence


@pytest.mark.parametrize(
    ("drawn", "taken"),
    [
        ([5, 6, 7], [5, 6, 7]),
        ([5, 9, 7], [5, 9]),
        ([9, 6, 7], [9]),
        ([5, 9, NoToken.BROKEN], [5, 9]),
    ],
)
def test_drafts_are_taken_as_long_as_they_are_what_was_drawn_and_one_token_more(
    drawn: list[Drawn], taken: list[int], stage: FakeText
) -> None:
    sequence = almost_computed(stage)
    delta = commit_run(sequence, (5, 6), drawn, stage)
    assert delta.token_ids == tuple(taken)
    assert delta.num_generated_tokens == len(taken)
    assert len(delta.text) == len(taken)
    assert sequence.num_computed == 2 + len(taken)
    assert sequence.num_pending == 1


def test_an_answer_that_ends_inside_a_run_ends_there(stage: FakeText) -> None:
    sequence = almost_computed(stage, stop_token_ids=(6,))
    delta = commit_run(sequence, (5, 6), [5, 6, 7], stage)
    assert (delta.token_ids, delta.text) == ((5, 6), "f")
    assert (delta.finish_reason, delta.stop_reason) == (FinishReason.STOP, 6)
    assert sequence.num_computed < sequence.num_known


def test_logits_that_are_no_numbers_inside_a_run_keep_the_tokens_before_them(
    stage: FakeText,
) -> None:
    sequence = almost_computed(stage)
    delta = commit_run(sequence, (5, 6), [5, NoToken.BROKEN, 7], stage)
    assert (delta.token_ids, delta.finish_reason) == ((5,), FinishReason.ERROR)
    assert delta.num_generated_tokens == 1
    assert not stage.live


def test_logprobs_are_those_of_the_tokens_that_were_taken(stage: FakeText) -> None:
    sequence = almost_computed(stage)
    told = {row: TokenLogprobs(-float(row), 1, (), ()) for row in range(3)}
    share = Scheduled(sequence, 3, 3, (5, 6))
    (delta,) = commit(StepPlan((share,)), [5, 9, 7], text_stage=stage, logprobs=told)
    assert delta.logprobs == (told[0], told[1])


def test_a_stopping_id_gives_its_text_where_the_request_includes_stops(stage: FakeText) -> None:
    sequence = make_sequence("a", 3, stop_token_ids=(7,), stop=("xyz",), include_stop=True)
    started(stage, sequence)
    assert commit_one(sequence, 1, stage).text == ""  # held back
    delta = commit_one(sequence, 7, stage)
    assert (delta.text, delta.stop_reason) == ("bh", 7)


def test_what_was_reused_and_which_choice_it_is_are_told(stage: FakeText) -> None:
    sequence = make_sequence("a", 3)
    sequence.choice, sequence.num_cached = 2, 1
    started(stage, sequence)
    delta = commit_one(sequence, 4, stage)
    assert (delta.choice, delta.num_cached_tokens, delta.is_last) == (2, 1, False)
