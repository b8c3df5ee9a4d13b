"""Answers are kept so that they are equal only bit by bit."""

import dataclasses
import math

from builder.cli.determinism.narrowed import Narrowed
from builder.cli.determinism.serving import Answer, _bits, first_difference, serve
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend.engine import Engine
from triton_backend.request import FinishReason, Request, SamplingParams, TokenLogprobs

ANSWER = Answer((1, 2, 3), (b"a", b"b", b"c"), "text", FinishReason.LENGTH, 0)
LOGPROBS = TokenLogprobs(-0.5, 1, (4, 5), (-0.5, -1.0))


def executor() -> ScriptedExecutor:
    limits = make_limits(max_seq_len=32, max_num_seqs=4, num_blocks=20)
    return ScriptedExecutor(limits, block_size=4, vocab_size=50)


def other(**fields: object) -> Answer:
    return dataclasses.replace(ANSWER, **fields)


def test_equal_answers_have_no_difference() -> None:
    assert first_difference(ANSWER, other()) is None


def test_reused_tokens_make_no_difference() -> None:
    assert first_difference(ANSWER, other(num_cached_tokens=9)) is None


def test_the_first_other_token_is_named_by_its_place() -> None:
    assert first_difference(ANSWER, other(token_ids=(1, 9, 9))) == "token_ids from token 1 on"


def test_a_short_answer_is_told_by_its_length() -> None:
    assert first_difference(ANSWER, other(token_ids=(1, 2))) == "token_ids: 2 for 3"


def test_other_bits_of_a_logprob_are_a_difference() -> None:
    assert (
        first_difference(ANSWER, other(logprobs=(b"a", b"b", b"x"))) == "logprobs from token 2 on"
    )


def test_other_text_and_another_end_are_differences() -> None:
    assert first_difference(ANSWER, other(text="")) == "text"
    assert first_difference(ANSWER, other(finish_reason=FinishReason.STOP)) == "finish_reason"


def test_bits_tell_numbers_apart_that_compare_equal_and_not_those_that_do_not() -> None:
    zero = dataclasses.replace(LOGPROBS, logprob=0.0)
    assert _bits(zero) != _bits(dataclasses.replace(LOGPROBS, logprob=-0.0))
    missing = dataclasses.replace(LOGPROBS, logprob=math.nan)
    assert _bits(missing) == _bits(dataclasses.replace(LOGPROBS, logprob=math.nan))
    assert _bits(LOGPROBS) != _bits(dataclasses.replace(LOGPROBS, rank=2))


def test_every_choice_is_an_answer_of_its_own() -> None:
    engine = Engine(executor(), end_token_ids=())
    params = SamplingParams(seed=1, max_tokens=4, num_choices=2, logprobs=1)
    answers = serve(engine, [Request("a", (1, 2), params), Request("b", (3,), params)], stagger=2)
    assert set(answers) == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    assert all(len(answer.token_ids) == len(answer.logprobs) == 4 for answer in answers.values())
    assert answers["a", 0].token_ids != answers["a", 1].token_ids


def test_a_narrowed_executor_lowers_limits_and_never_raises_them() -> None:
    whole = executor()
    narrowed = Narrowed(whole, num_blocks=7, max_num_seqs=99)
    assert narrowed.limits.num_blocks == 7
    assert narrowed.limits.max_num_seqs == 4
    assert whole.limits.num_blocks == 20
    assert (narrowed.kv, narrowed.vocab_size) == (whole.kv, whole.vocab_size)
    narrowed.close()
    Engine(narrowed, end_token_ids=()).submit(Request("a", (1,)))
