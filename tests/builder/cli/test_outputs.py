"""Answers in prompt order on one stream."""

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from builder.cli.outputs import JsonOutput, TextOutput
from builder.cli.run import Outcome
from triton_backend.request import FinishReason

DONE = Outcome(FinishReason.STOP, 3, 7, ttft_s=1.0, total_s=2.0, error=None)
FAILED = Outcome(FinishReason.ERROR, 3, 0, ttft_s=1.0, total_s=1.0, error="not finite")


class Flushed(io.BytesIO):
    """Counts what a reader at the other end of a pipe would have seen after each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []

    def flush(self) -> None:
        self.seen.append(self.getvalue())


def test_the_first_answer_is_written_as_it_grows() -> None:
    stream = Flushed()
    output = TextOutput(stream, 1)
    output.add(0, "Hel")
    output.add(0, "")
    output.add(0, "lo")
    output.finish(0, DONE)
    assert stream.seen == [b"Hel", b"Hello", b"Hello\n"]


def test_a_later_answer_waits_and_goes_live_when_its_turn_comes() -> None:
    stream = io.BytesIO()
    output = TextOutput(stream, 2)
    output.add(1, "se")
    output.add(0, "first")
    assert stream.getvalue() == b"first"
    output.finish(0, DONE)
    assert stream.getvalue() == b"first\nse"
    output.add(1, "cond")
    assert stream.getvalue() == b"first\nsecond"
    output.finish(1, DONE)
    assert stream.getvalue() == b"first\nsecond\n"


def test_answers_that_finished_early_follow_at_once() -> None:
    stream = io.BytesIO()
    output = TextOutput(stream, 4)
    for index in (2, 1):
        output.add(index, f"text {index}")
        output.finish(index, DONE)
    assert stream.getvalue() == b""
    output.finish(0, DONE)
    assert stream.getvalue() == b"\ntext 1\ntext 2\n"


def test_a_text_that_ends_with_a_newline_gets_no_second_one() -> None:
    stream = io.BytesIO()
    output = TextOutput(stream, 2)
    output.add(0, "a\n")
    output.finish(0, DONE)
    output.add(1, "b\n\n")
    output.finish(1, DONE)
    assert stream.getvalue() == b"a\nb\n\n"


def test_an_empty_answer_is_an_empty_line() -> None:
    stream = io.BytesIO()
    TextOutput(stream, 1).finish(0, DONE)
    assert stream.getvalue() == b"\n"


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.lists(st.text(max_size=3), max_size=4), min_size=1, max_size=4))
def test_any_order_of_arrival_gives_the_same_bytes(
    data: st.DataObject, texts: list[list[str]]
) -> None:
    one_by_one = "".join(
        joined if joined.endswith("\n") else joined + "\n" for joined in map("".join, texts)
    )
    stream = io.BytesIO()
    output = TextOutput(stream, len(texts))
    pending = {index: list(parts) for index, parts in enumerate(texts)}
    while pending:
        index = data.draw(st.sampled_from(sorted(pending)))
        if pending[index]:
            output.add(index, pending[index].pop(0))
        else:
            output.finish(index, DONE)
            del pending[index]
    assert stream.getvalue() == one_by_one.encode()


def test_json_is_one_line_an_answer_in_prompt_order() -> None:
    stream = io.BytesIO()
    output = JsonOutput(stream, 2)
    output.add(1, "zwei\n")
    output.finish(1, FAILED)
    assert stream.getvalue() == b""
    output.add(0, "é")
    output.add(0, "ins")
    output.finish(0, DONE)
    first, second = stream.getvalue().decode().splitlines()
    assert json.loads(first) == {
        "index": 0,
        "text": "éins",
        "finish_reason": "stop",
        "num_prompt_tokens": 3,
        "num_generated_tokens": 7,
    }
    assert json.loads(second)["error"] == "not finite"
    assert json.loads(second)["text"] == "zwei\n"
