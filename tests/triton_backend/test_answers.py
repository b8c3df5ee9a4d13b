"""The text stage: detokenizing and stop strings together, one state per answer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import RequestError
from tests.triton_backend.vocabularies import added, byte_level, loaded, sentencepiece
from triton_backend.answers import Answers
from triton_backend.groundwork import Groundwork
from triton_backend.request import Request, SamplingParams
from triton_backend.stops import StopStrings
from triton_backend.text import TextStage

TOOL, END = 257, 256
TOKENIZER = loaded(byte_level(added(END, "<|end|>"), added(TOOL, "<tool>", special=False)))


def make_answers() -> Answers:
    return Answers(TOKENIZER, [END])


def request(name: str = "r", prompt: tuple[int, ...] = (1,), **params: object) -> Request:
    return Request(name, prompt, SamplingParams(**params))  # type: ignore[arg-type]


def prepared(stage: TextStage, asked: Request) -> Request:
    """Lay the groundwork of a text."""
    prompt = asked.prompt_token_ids
    groundwork = Groundwork(b"", stage.opens_text(prompt), StopStrings(asked.params.stop))
    return replace(asked, groundwork=groundwork)


def begin(answers: TextStage, asked: Request) -> None:
    answers.start((asked.request_id, 0), prepared(answers, asked))


def test_it_is_the_text_stage_that_the_engine_asks_for() -> None:
    stage: TextStage = make_answers()
    begin(stage, request())
    assert stage.extend(("r", 0), b"hi") == ("hi", None)
    assert stage.finish(("r", 0)) == ""


def test_a_stop_string_ends_the_text_before_it() -> None:
    answers = make_answers()
    begin(answers, request(stop=("STOP", "\n")))
    assert answers.extend(("r", 0), b"one S") == ("one ", None)
    assert answers.extend(("r", 0), b"TOP two") == ("", "STOP")
    assert answers.finish(("r", 0)) == ""


def test_text_that_was_held_back_comes_at_the_end() -> None:
    answers = make_answers()
    begin(answers, request(stop=("STOP",)))
    assert answers.extend(("r", 0), b"STO") == ("", None)
    assert answers.finish(("r", 0)) == "STO"


def test_an_incomplete_character_is_dropped_at_the_end() -> None:
    answers = make_answers()
    begin(answers, request(stop=("STOP",)))
    assert answers.extend(("r", 0), [*b"S", *"é".encode()[:1]]) == ("", None)
    assert answers.finish(("r", 0)) == "S"


@given(st.text("ab\n", max_size=20), st.lists(st.integers(1, 5), min_size=1), st.integers(0, 8))
def test_an_answer_does_not_depend_on_how_many_tokens_a_step_brings(
    text: str, sizes: list[int], min_tokens: int
) -> None:
    stops = ("ab", "b\n", "aab")
    one_by_one, by_runs = make_answers(), make_answers()
    for answers in (one_by_one, by_runs):
        begin(answers, request(stop=stops, min_tokens=min_tokens))
    first = [one_by_one.extend(("r", 0), [token_id]) for token_id in text.encode()]
    second, rest = [], list(text.encode())
    while rest:
        size = sizes[len(rest) % len(sizes)]
        second.append(by_runs.extend(("r", 0), rest[:size]))
        rest = rest[size:]
    assert "".join(t for t, _ in first) == "".join(t for t, _ in second)
    assert [s for _, s in first][-1:] == [s for _, s in second][-1:]
    assert one_by_one.finish(("r", 0)) == by_runs.finish(("r", 0))


@pytest.mark.parametrize(
    ("min_tokens", "text", "stop"),
    [
        (0, "a", "b"),
        (1, "a", "b"),
        (2, "a", "b"),
        (3, "ab", "b"),
        (4, "ab", "b"),
        (5, "abcb", None),
    ],
)
def test_a_stop_string_counts_from_the_token_that_makes_min_tokens(
    min_tokens: int, text: str, stop: str | None
) -> None:
    answers = make_answers()
    begin(answers, request(stop=("b",), min_tokens=min_tokens))
    assert answers.extend(("r", 0), b"ab") == (
        ("ab"[: len(text)]),
        stop if min_tokens < 3 else None,
    )
    if min_tokens >= 3:
        expected = {3: ("c", None), 4: ("c", "b"), 5: ("cb", None)}[min_tokens]
        got = answers.extend(("r", 0), b"cb" if min_tokens > 3 else b"c")
        assert got == expected


def test_end_tokens_give_no_text_but_count_as_tokens() -> None:
    answers = Answers(TOKENIZER, [END, TOOL])
    begin(answers, request(stop=("b",), min_tokens=3))
    assert answers.extend(("r", 0), [TOOL, END, ord("b")]) == ("", "b")


def test_an_added_token_that_ends_nothing_gives_its_text() -> None:
    answers = make_answers()
    begin(answers, request())
    assert answers.extend(("r", 0), [TOOL]) == ("<tool>", None)


def test_answers_do_not_see_each_other() -> None:
    answers = make_answers()
    begin(answers, request("a", stop=("x",)))
    begin(answers, request("b"))
    halves = "é".encode()
    assert answers.extend(("a", 0), halves[:1]) == ("", None)
    assert answers.extend(("b", 0), b"x") == ("x", None)
    assert answers.extend(("a", 0), halves[1:]) == ("é", None)
    assert answers.finish(("b", 0)) == ""
    assert answers.extend(("a", 0), b"x") == ("", "x")


def test_an_answer_follows_the_text_of_its_prompt() -> None:
    tokenizer = loaded(sentencepiece(front="always"))
    word = tokenizer.encode("world")
    answers = Answers(tokenizer, [2])
    begin(answers, request("text", prompt=tuple(tokenizer.encode("hello"))))
    begin(answers, request("control", prompt=(1,)))
    assert answers.extend(("text", 0), word) == (" world", None)
    assert answers.extend(("control", 0), word) == ("world", None)


def test_nothing_is_left_of_a_finished_answer() -> None:
    answers = make_answers()
    for _ in range(2):
        begin(answers, request(stop=("x",)))
        answers.extend(("r", 0), b"abc")
        answers.finish(("r", 0))
        assert len(answers) == 0


def test_the_id_of_a_running_answer_is_refused() -> None:
    answers = make_answers()
    begin(answers, request())
    with pytest.raises(RequestError, match="request with this id is running"):
        begin(answers, request())


def test_a_stop_string_is_part_of_the_text_where_the_request_includes_stops() -> None:
    answers = make_answers()
    begin(answers, request(stop=("STOP", "x"), include_stop=True))
    assert answers.extend(("r", 0), b"one ST") == ("one ", None)
    assert answers.extend(("r", 0), b"OP two") == ("STOP", "STOP")
    assert answers.finish(("r", 0)) == ""


def test_each_choice_has_a_text_of_its_own() -> None:
    answers = make_answers()
    asked = prepared(answers, request(stop=("ab",)))
    for choice in (0, 1):
        answers.start(("r", choice), asked)
    assert answers.extend(("r", 0), b"a") == ("", None)
    assert answers.extend(("r", 1), b"b") == ("b", None)
    assert answers.finish(("r", 0)) == "a"
    assert len(answers) == 1
