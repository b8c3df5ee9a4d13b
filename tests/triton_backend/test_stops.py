"""Stop strings: equal to searching the whole text, and never holding back more than needed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import RequestError
from triton_backend.stops import StopMatcher, StopStrings

STOPS = st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4)
PIECES = st.lists(st.text("abc", max_size=4), max_size=25)


def naive_cut(text: str, stops: list[str]) -> int | None:
    """Where a text that has a stop string is cut: the lowest place of all."""
    return min((text.find(stop) for stop in stops if stop in text), default=None)


def longest_held(text: str, stops: list[str]) -> int:
    """Length of the longest end of `text` that begins a stop string without being all of it."""
    lengths = range(min(len(text), max(map(len, stops)) - 1), 0, -1)
    return next((n for n in lengths if any(s[:n] == text[-n:] and s[n:] for s in stops)), 0)


@given(STOPS, PIECES)
def test_each_piece_gives_what_searching_the_whole_text_gives(
    stops: list[str], pieces: list[str]
) -> None:
    matcher = StopMatcher(StopStrings(stops))
    given_text = whole = ""
    for piece in pieces:
        whole += piece
        given_text += matcher.feed(piece)
        cut = naive_cut(whole, stops)
        if cut is not None:
            assert given_text == whole[:cut]
            assert matcher.matched is not None
            assert whole.startswith(matcher.matched, cut)
            assert matcher.flush() == ""
            return
        assert matcher.matched is None
        assert given_text == whole[: len(whole) - longest_held(whole, stops)]
    assert given_text + matcher.flush() == whole


@given(STOPS, PIECES, st.integers(0, 25))
def test_a_match_counts_only_in_pieces_that_may_end_the_text(
    stops: list[str], pieces: list[str], num_passed: int
) -> None:
    matcher = StopMatcher(StopStrings(stops))
    given_text = whole = ""
    for piece in pieces[:num_passed]:
        whole += piece
        given_text += matcher.pass_over(piece)
        assert matcher.matched is None
        assert given_text == whole[: len(whole) - longest_held(whole, stops)]
    for piece in pieces[num_passed:]:
        first = len(whole) + 1
        whole += piece
        given_text += matcher.feed(piece)
        cuts = [
            end - len(stop)
            for end in range(first, len(whole) + 1)
            for stop in stops
            if whole.endswith(stop, 0, end)
        ]
        if cuts:
            assert matcher.matched is not None
            assert given_text == whole[: min(cuts)]
            return
    assert given_text + matcher.flush() == whole


@pytest.mark.parametrize(
    ("stops", "pieces", "deltas"),
    [
        (["STOP"], ["abc", "S", "TO", "P and more"], ["abc", "", "", ""]),
        (["STOP"], ["abc", "ST", "UP"], ["abc", "", "STUP"]),
        (["\n\n"], ["one\n", "two\n", "\nthree"], ["one", "\ntwo", ""]),
        (["aab"], ["aa", "a", "ab"], ["", "a", "a"]),
        (["abcd", "bc"], ["ab", "c"], ["", "a"]),
        (["d", "abcd"], ["abcd"], [""]),
        (["👍🏽"], ["ok 👍", "🏿 👍", "🏽!"], ["ok ", "👍🏿 ", ""]),
        ([], ["any", "thing"], ["any", "thing"]),
    ],
)
def test_pieces_are_given_as_soon_as_they_are_certain(
    stops: list[str], pieces: list[str], deltas: list[str]
) -> None:
    matcher = StopMatcher(StopStrings(stops))
    assert [matcher.feed(piece) for piece in pieces] == deltas


def test_without_stop_strings_nothing_is_held_back() -> None:
    matcher = StopMatcher(StopStrings([]))
    assert matcher.pass_over("any") + matcher.feed("thing") == "anything"
    assert matcher.flush() == ""


def test_the_stop_string_that_cut_the_text_is_named() -> None:
    matcher = StopMatcher(StopStrings(["xyz", "\n", "END"]))
    matcher.feed("the EN")
    matcher.feed("D\n")
    assert matcher.matched == "END"


def test_a_piece_costs_time_by_its_own_length_alone() -> None:
    """With 16 stop strings of 1,024 times "a", each of 20,000 pieces extends a full hold-back."""
    stops = ["a" * 1023 + chr(ord("b") + index) for index in range(16)]
    matcher = StopMatcher(StopStrings(stops))
    steps = 0

    def count(character: str) -> str | None:
        nonlocal steps
        steps += 1
        return step(character)

    step = matcher._step
    matcher._step = count  # type: ignore[method-assign]
    for _ in range(20_000):
        matcher.feed("a")
    assert steps == 20_000
    assert len(matcher.flush()) == 1023


def test_long_texts_equal_the_search_of_the_whole() -> None:
    draw = random.Random(5)  # noqa: S311
    for _ in range(30):
        stops = ["".join(draw.choices("abcde", k=draw.randint(4, 7))) for _ in range(4)]
        text = "".join(draw.choices("abcde", k=4000))
        matcher = StopMatcher(StopStrings(stops))
        given_text, rest = "", text
        while rest and matcher.matched is None:
            size = draw.randint(1, 9)
            given_text += matcher.feed(rest[:size])
            rest = rest[size:]
        cut = naive_cut(text[: len(text) - len(rest)], stops)
        assert given_text + matcher.flush() == (text if cut is None else text[:cut])


@pytest.mark.parametrize(
    ("stops", "message"),
    [(["ok", ""], r"stop\[1\] is empty"), (["\ud83d"], r"stop\[0\] has half of a surrogate pair")],
)
def test_a_stop_string_that_nothing_matches_is_refused_by_position(
    stops: list[str], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        StopStrings(stops)


def test_answers_share_stop_strings_and_not_their_place_in_them() -> None:
    stops = StopStrings(["ab"])
    first, second = StopMatcher(stops), StopMatcher(stops)
    assert first.feed("a") == ""
    assert second.feed("b") == "b"
    first.feed("b")
    assert (first.matched, second.matched) == ("ab", None)
