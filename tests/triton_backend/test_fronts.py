"""Fronts of a host: each has its own requests, hears of them alone, and takes them along."""

import logging
import threading
from typing import Any

import pytest

from builder.errors import ArtifactError
from tests.triton_backend.host_stage import (
    HELLO,
    PATIENCE_S,
    Stage,
    answer,
    await_true,
    submit,
)
from triton_backend import joined_front
from triton_backend.messages import (
    VERSION,
    Busy,
    Cancel,
    Deltas,
    Failed,
    Join,
    Leave,
    News,
    Ping,
    PlainText,
    Pong,
    RefusalKind,
    Refused,
    Submit,
    TokenIds,
)
from triton_backend.request import FinishReason, SamplingParams


def test_a_front_waits_until_the_engine_is_loaded(stage: Stage) -> None:
    link = stage.connect()
    link.send(Join(VERSION, "forerun"))
    link.send(submit(1))
    stage.load()
    assert link.receive() == HELLO
    assert len(answer(link, 1)) == 3


def test_a_failure_to_load_is_told_in_its_own_words(stage: Stage) -> None:
    link = stage.connect()
    link.send(Join(VERSION, "forerun"))
    stage.loaded.set_exception(ArtifactError("there is no artifact"))
    assert link.receive() == Failed("there is no artifact", exit_code=2)
    assert link.receive() is None


def test_a_front_of_another_version_is_told_so(served: Stage) -> None:
    link = served.connect()
    link.send(Join(VERSION + 1, "forerun"))
    failed = link.receive()
    assert isinstance(failed, Failed)
    assert failed.exit_code == 2
    assert f"speaks version {VERSION} of the link and the front version {VERSION + 1}" in (
        failed.message
    )
    assert link.receive() is None


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([submit(1)], "spoke before it joined"),
        ([Join(VERSION, "a"), Join(VERSION, "a")], "joined twice"),
        ([Join(VERSION, "a"), submit(1, max_tokens=900), submit(1)], "the id of an open request"),
    ],
)
def test_a_front_that_breaks_the_rules_is_cut_off(
    served: Stage, messages: list[Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    link = served.connect()
    for message in messages:
        link.send(message)
    while link.receive() is not None:
        pass
    await_true(lambda: reason in caplog.text)
    await_true(lambda: not served.engine.has_work)


def test_whoever_leaves_without_a_word_is_no_front(
    served: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    link = served.connect()
    await_true(lambda: served.fronts._num_connected == 1)
    link.close()
    await_true(lambda: served.fronts._num_connected == 0)
    assert caplog.text == ""


def test_news_carry_the_bytes_of_tokens(served: Stage) -> None:
    link = served.join()
    link.send(submit(7))
    for place, news in enumerate(answer(link, 7), start=1):
        (token_id,) = news.token_ids
        assert news.token_bytes == (b"<%d>" % token_id,)
        assert news.top_bytes == ((b"<%d>" % news.logprobs[0].top_ids[0],),)
        assert (news.num_prompt_tokens, news.num_generated_tokens) == (3, place)


def test_two_fronts_may_use_the_same_ids(served: Stage) -> None:
    first, second = served.join(), served.join()
    first.send(submit(1, max_tokens=2))
    second.send(submit(1, max_tokens=5))
    assert len(answer(first, 1)) == 2
    assert len(answer(second, 1)) == 5


def test_an_id_may_be_used_again_after_its_end(served: Stage) -> None:
    link = served.join()
    for _ in range(3):
        link.send(submit(1))
        assert len(answer(link, 1)) == 3


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (submit(1, max_tokens=999), RefusalKind.INVALID, "exceed max_seq_len 1000"),
        (submit(1, prompt=PlainText("this")), RefusalKind.INVALID, "this can't be encoded."),
        (
            submit(1, prompt=PlainText("panic")),
            RefusalKind.INTERNAL,
            "reading the request failed with PanicError.",
        ),
    ],
)
def test_a_refused_request_leaves_the_others(
    served: Stage,
    message: Submit,
    kind: RefusalKind,
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    link = served.join()
    link.send(message)
    refused = link.receive()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.kind) == (1, kind)
    assert text in refused.message
    link.send(submit(1))
    assert len(answer(link, 1)) == 3
    assert "words of a prompt" not in caplog.text


def test_a_running_request_is_cancelled(served: Stage) -> None:
    link = served.join()
    link.send(submit(1, max_tokens=900))
    link.receive()
    link.send(Cancel(1))
    assert answer(link, 1)[-1].finish_reason is FinishReason.CANCELLED
    await_true(lambda: served.engine.scheduler.pool.num_used == 0)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_front_that_is_gone_takes_its_requests_along(served: Stage, leaves: bool) -> None:
    gone, stays = served.join(), served.join()
    for number in range(3):
        gone.send(submit(number, max_tokens=900))
    stays.send(submit(1, max_tokens=900))
    gone.receive()
    if leaves:
        gone.send(Leave())
    gone.close()
    await_true(lambda: len(served.engine.scheduler.running) == 1)
    assert len(answer(stays, 1)) > 100


def test_a_ping_is_answered_by_the_engine(served: Stage) -> None:
    link = served.join()
    link.send(submit(1))
    answer(link, 1)
    link.send(Ping())
    pong = link.receive()
    assert isinstance(pong, Pong)
    assert (pong.num_running, pong.counters["num_generated_tokens"], pong.num_blocks) == (0, 3, 999)


def test_a_ping_during_a_step_is_answered_at_once(served: Stage) -> None:
    link = served.join()
    for _ in range(2):
        step_ends = threading.Event()
        served.worker.inquire(lambda _, ends=step_ends: ends.wait(PATIENCE_S))
        for _ in range(3):
            link.send(Ping())
        busy = [link.receive(), link.receive()]
        assert all(isinstance(each, Busy) and 0 <= each.waited_s < PATIENCE_S for each in busy)
        assert busy == sorted(busy, key=lambda each: each.waited_s)
        step_ends.set()
        assert isinstance(link.receive(), Pong)


def test_a_front_that_does_not_read_is_cut_off_and_keeps_nobody_waiting(
    served: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_front, "MAX_BACKLOG", 20)
    deaf, reads = served.join(), served.join()
    for number in range(90):
        deaf.send(submit(number, max_tokens=900))
    await_true(lambda: served.engine.scheduler.running)
    await_true(lambda: not served.engine.has_work)
    reads.send(submit(1))
    assert len(answer(reads, 1)) == 3
    assert len(served.fronts._joined) == 1


def test_a_defect_in_what_a_front_hears_ends_its_link(
    served: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = served.join()
    monkeypatch.setattr(served.model.tokenizer, "token_bytes", None)
    link.send(submit(1, max_tokens=900))
    assert link.receive() is None
    await_true(lambda: not served.engine.has_work)


def test_ending_sends_what_was_heard_before(served: Stage) -> None:
    link = served.join()
    link.send(submit(1))
    await_true(lambda: served.engine.metrics.num_generated_tokens == 3)
    await_true(lambda: not served.engine.has_work)
    served.fronts.end_all()
    assert len(answer(link, 1)) == 3
    assert link.receive() is None


def test_choices_are_numbered_and_the_last_news_says_so(served: Stage) -> None:
    link = served.join()
    params = SamplingParams(seed=1, max_tokens=3, num_choices=3, prompt_logprobs=0)
    link.send(Submit(1, TokenIds((3, 1, 4)), params))
    heard: list[News] = []
    while not heard or not heard[-1].is_last:
        message = link.receive()
        assert isinstance(message, Deltas)
        heard += message.news
    assert sorted(news.choice for news in heard if news.finish_reason) == [0, 1, 2]
    assert [news.is_last for news in heard].count(True) == 1
    (told,) = [news for news in heard if news.prompt_logprobs]
    assert (told.choice, len(told.prompt_logprobs)) == (0, 2)
    assert told.prompt_token_ids == (3, 1, 4)
    assert told.prompt_token_bytes == (b"<3>", b"<1>", b"<4>")
    assert told.prompt_top_bytes == ((), ())


def test_the_likeliest_tokens_of_a_prompt_come_with_their_bytes(served: Stage) -> None:
    link = served.join()
    params = SamplingParams(max_tokens=1, prompt_logprobs=2)
    link.send(Submit(1, TokenIds((3, 1)), params))
    (news,) = answer(link, 1)
    (told,) = news.prompt_logprobs
    assert news.prompt_top_bytes == (tuple(b"<%d>" % each for each in told.top_ids),)
