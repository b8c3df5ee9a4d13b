"""Control strings in text: where they are found, how a text is cut, and how they are broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_backend.segments import ControlStrings, Segment, SegmentKind

SENTINEL = "\ufdd0"
CONTROLS = ("<s>", "</s>", "<|end|>", "<|end|>x", "[A]", "aba", "ab")
PIECES = st.lists(
    st.sampled_from(
        [*CONTROLS, "<", "|", ">", "<|", "end", "|>", "a", "b", "x", " ", "[", "A]", "é"]
    )
)
TEXTS = PIECES.map("".join)


def control(text: str) -> Segment:
    return Segment(SegmentKind.CONTROL, text)


def plain(text: str) -> Segment:
    return Segment(SegmentKind.TEXT, text)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", []),
        ("hi", [plain("hi")]),
        ("<s>", [control("<s>")]),
        ("a<s></s>b", [plain("a"), control("<s>"), control("</s>"), plain("b")]),
        ("<<s>>", [plain("<"), control("<s>"), plain(">")]),
        ("<|end|>x", [control("<|end|>x")]),
        ("<|end|>y", [control("<|end|>"), plain("y")]),
        ("ababa", [control("aba"), plain("ba")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_is_cut_at_the_leftmost_and_longest_control_strings(
    text: str, segments: list[Segment]
) -> None:
    strings = [each for each in CONTROLS if each != "ab" or "aba" in text]
    assert ControlStrings(strings).split(text) == segments


def test_overlapping_strings_are_all_found() -> None:
    assert list(ControlStrings(["aba", "ab"]).found_in("ababa")) == [(0, 3), (2, 5)]


def test_without_control_strings_everything_is_text() -> None:
    assert ControlStrings([]).split("<s>") == [plain("<s>")]
    assert ControlStrings([""]).broken("<s>", SENTINEL) == "<s>"


@given(TEXTS)
def test_the_segments_of_a_text_join_to_it(text: str) -> None:
    segments = ControlStrings(CONTROLS).split(text)
    assert "".join(segment.text for segment in segments) == text
    assert all(segment.text for segment in segments)


@given(TEXTS)
def test_texts_between_control_segments_hold_no_control_string(text: str) -> None:
    controls = ControlStrings(CONTROLS)
    for segment in controls.split(text):
        is_control = segment.kind is SegmentKind.CONTROL
        assert (
            (segment.text in CONTROLS) if is_control else not list(controls.found_in(segment.text))
        )


@given(before=TEXTS, text=TEXTS, after=TEXTS)
def test_no_character_of_a_broken_text_is_ever_in_a_control_string(
    before: str, text: str, after: str
) -> None:
    controls = ControlStrings(CONTROLS)
    broken = controls.broken(text, SENTINEL)
    assert broken.replace(SENTINEL, "") == text
    for start, end in controls.found_in(before + broken + after):
        # What is left lies in the neighbours, or goes from one to the other past an empty text.
        assert end <= len(before) or start >= len(before) + len(broken) or not text


@given(st.lists(TEXTS, min_size=2, max_size=5))
def test_broken_texts_side_by_side_make_no_control_string(texts: list[str]) -> None:
    controls = ControlStrings(CONTROLS)
    joined = "".join(controls.broken(text, SENTINEL) for text in texts)
    assert list(controls.found_in(joined)) == []


@pytest.mark.parametrize("text", ["", "hello", "1 > 0, a < b", "  spaced  ", "x</ s>"])
def test_a_text_that_could_not_be_part_of_one_stays_as_it_is(text: str) -> None:
    assert ControlStrings(["<s>", "</s>"]).broken(text, SENTINEL) == text


def test_white_space_at_the_ends_stays_at_the_ends() -> None:
    broken = ControlStrings(["<s>"]).broken("  <s>\n", SENTINEL)
    assert broken == f"  <{SENTINEL}s>\n"
    assert broken.strip().replace(SENTINEL, "") == "<s>"


def test_thousands_of_control_strings_are_found_in_a_long_text_at_once() -> None:
    controls = ControlStrings(f"<unused{index}>" for index in range(6000))
    text = "<div><p>" * 20_000 + "<unused5999>"
    assert [end - start for start, end in controls.found_in(text)] == [12]


def test_a_segment_does_not_show_its_text() -> None:
    assert "secret" not in repr(plain("secret"))
