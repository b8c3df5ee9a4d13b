"""Messages keep what they say over the wire, merge without loss, and show no text of prompts or answers."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.config import Limits
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.messages import (
    VERSION,
    Busy,
    Cancel,
    Claim,
    ControlText,
    Deltas,
    Durations,
    Failed,
    FromFront,
    FromHost,
    Hello,
    Join,
    Leave,
    News,
    Ping,
    PlainText,
    Pong,
    RefusalKind,
    Refused,
    Segments,
    Submit,
    Terms,
    TokenIds,
    merged,
)
from triton_backend.request import FinishReason, SamplingParams, TokenLogprobs
from triton_backend.segments import Segment, SegmentKind

PROMPTS = [
    TokenIds((1, 2, 3)),
    PlainText("words of a prompt"),
    ControlText("words of a prompt"),
    Segments((Segment(SegmentKind.CONTROL, "<s>"), Segment(SegmentKind.TEXT, "words"))),
]
TOLD = TokenLogprobs(-0.5, 1, (3, 4), (-0.5, -1.5))
LAST = News(
    id=1,
    token_ids=(3,),
    text="words",
    token_bytes=(b"wor\xff",),
    num_prompt_tokens=5,
    num_generated_tokens=9,
    finish_reason=FinishReason.STOP,
    stop_reason="words",
    logprobs=(TOLD,),
    top_bytes=((b"a", b"b"),),
)
FROM_FRONT = [
    Join(VERSION, "forerun"),
    Cancel(1),
    Ping(),
    Leave(),
    Submit(
        7,
        PROMPTS[0],
        SamplingParams(constraint=Constraint(ConstraintKind.REGEX, "words")),
        Terms(Claim("words", 2**40, "words"), "words", False, -2, ("words",)),
        "r-1",
        12.5,
    ),
    *(Submit(2**40, prompt, SamplingParams(stop=("words",), logprobs=3)) for prompt in PROMPTS),
]
FROM_HOST = [
    Hello(VERSION, "ab" * 32, 100, Limits(8, 2, 8, 2, 9)),
    Failed("no"),
    Deltas((LAST, News(2, (), "", (), 1, 0, FinishReason.ERROR, error="broken"))),
    Refused(3, RefusalKind.UNAVAILABLE, "later"),
    Pong(
        1,
        2,
        3,
        4,
        5,
        "slots",
        {"num_steps": 1},
        {},
        {"stop": 1},
        {"ttft_s": Durations((1, 0), 0.5)},
    ),
    Busy(0.5),
]


@pytest.mark.parametrize("message", FROM_FRONT)
def test_what_a_front_says_arrives_as_it_was(message: FromFront) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FromFront) == message


@pytest.mark.parametrize("message", FROM_HOST)
def test_what_a_host_says_arrives_as_it_was(message: FromHost) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FromHost) == message


@pytest.mark.parametrize("message", [*FROM_FRONT, *FROM_HOST])
def test_no_message_shows_text(message: object) -> None:
    assert "words" not in repr(message)


def test_a_later_version_may_add_fields() -> None:
    later = msgspec.msgpack.encode(["hello", 2, "ab", 100, Limits(8, 2, 8, 2, 9), "something new"])
    hello = msgspec.msgpack.decode(later, type=FromHost)
    assert isinstance(hello, Hello)
    assert hello.version == 2


def test_one_piece_of_news_is_itself() -> None:
    assert merged([LAST]) is LAST


@given(cuts=st.lists(st.integers(1, 9), max_size=5))
def test_merged_news_tells_all_that_its_pieces_tell(cuts: list[int]) -> None:
    def piece(start: int, end: int) -> News:
        return News(
            id=1,
            token_ids=tuple(range(start, end)),
            text="".join(map(str, range(start, end))),
            token_bytes=tuple(b"%d" % number for number in range(start, end)),
            num_prompt_tokens=4,
            num_generated_tokens=end,
            finish_reason=FinishReason.LENGTH if end == 10 else None,
            stop_reason=None,
            error="why" if end == 10 else None,
            logprobs=(TOLD,) * (end - start),
            prompt_logprobs=() if start else (TOLD,),
            prompt_token_ids=() if start else (1, 2),
            prompt_token_bytes=() if start else (b"a", b"b"),
            prompt_top_bytes=() if start else ((b"a",),),
            top_bytes=((b"a", b"b"),) * (end - start),
        )

    places = sorted({0, *cuts, 10})
    pieces = [piece(start, end) for start, end in pairwise(places)]
    assert merged(pieces) == piece(0, 10)
