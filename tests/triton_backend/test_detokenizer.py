"""Streams of text: never a broken character, and together what one decoding of all bytes gives."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from builder.checkpoint.tokenizer_files import TokenizerFiles
from tests.texts import varied_texts
from tests.triton_backend.vocabularies import added, byte_level, loaded, sentencepiece, unigram
from triton_backend.detokenizer import Detokenizer, opens_text
from triton_backend.tokenizer import Tokenizer

BYTES = loaded(byte_level(added(256, "<|end|>")))
SPM_FILE = sentencepiece(front="always")
SPM = loaded(SPM_FILE)
WHOLE_CHARACTERS = [
    "a",
    "é",
    "日",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "e\u0301",
    "שלום",
    "\u202e",
    "\x00",
    "\uffff",
    "\U0010ffff",
]
BROKEN = [
    b"\x80",
    b"\xc3",
    b"\xe6\x97",
    b"\xf0\x9f\x91",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xff",
    b"\xf5",
]
DATA = st.lists(
    st.sampled_from([*(text.encode() for text in WHOLE_CHARACTERS), *BROKEN])
    | st.binary(max_size=4)
).map(b"".join)
CUTS = st.lists(st.integers(1, 4), min_size=1)


def streamed(tokenizer: Tokenizer, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, opens_text=opens_text(tokenizer, prompt))
    return [detokenizer.feed([token_id]) for token_id in ids]


def one_shot(data: bytes) -> str:
    """All bytes at once, but for an incomplete character at their end."""
    sizes = [size for size in range(min(3, len(data)), 0, -1) if is_incomplete(data[-size:])]
    return data[: len(data) - sum(sizes[:1])].decode("utf-8", "replace")


def is_incomplete(data: bytes) -> bool:
    """Whether more bytes can make one character of `data`."""
    seconds = (b"", b"\x80", b"\x90", b"\xa0")
    ends = [second + b"\x80" * more for second in seconds for more in range(3)]
    return any(is_one_character(data + end) for end in ends if end)


def is_one_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


@given(DATA)
def test_the_deltas_of_any_bytes_join_to_their_one_shot_text(data: bytes) -> None:
    assert "".join(streamed(BYTES, list(data))) == one_shot(data)


@given(DATA, CUTS)
def test_a_text_does_not_depend_on_how_its_tokens_are_cut_into_calls(
    data: bytes, cuts: list[int]
) -> None:
    detokenizer = Detokenizer(BYTES)
    text, rest = "", list(data)
    while rest:
        size = cuts[len(rest) % len(cuts)]
        text += detokenizer.feed(rest[:size])
        rest = rest[size:]
    assert text == "".join(streamed(BYTES, list(data)))


@given(st.text())
def test_no_delta_of_a_valid_text_has_a_replacement_character(text: str) -> None:
    deltas = streamed(BYTES, list(text.encode()))
    assert "".join(deltas) == text
    assert all("\ufffd" not in delta for delta in deltas) or "\ufffd" in text


def test_a_character_waits_for_its_last_byte() -> None:
    assert streamed(BYTES, list("a👍é".encode())) == ["a", "", "", "", "👍", "", "é"]


@pytest.mark.parametrize("data", [b"ok\xf0\x9f\x91", b"ok\xe6\x97", b"ok\xc3"])
def test_a_character_that_never_becomes_complete_is_dropped(data: bytes) -> None:
    assert "".join(streamed(BYTES, list(data))) == "ok"


@pytest.mark.parametrize(
    "data", [b"\xffa", b"\xe6\x97a", b"\xf0\x9f\x91\xf0\x9f\x91\x8d", b"\xc3\xc3\xa9"]
)
def test_bytes_that_can_be_no_character_become_what_python_makes_of_them(data: bytes) -> None:
    assert "".join(streamed(BYTES, list(data))) == data.decode("utf-8", "replace")


def test_control_tokens_and_ids_past_the_vocabulary_give_no_text() -> None:
    assert streamed(BYTES, [ord("a"), 256, 257, 10**6, ord("b")]) == ["a", "", "", "", "b"]


def test_a_control_token_does_not_break_a_character_in_two() -> None:
    first, *rest = "é".encode()
    assert streamed(BYTES, [first, 256, *rest]) == ["", "", "é"]


@pytest.mark.model
def test_the_real_tokenizer_streams_what_the_library_decodes(
    smollm2_files: TokenizerFiles, smollm2_tokenizer: Tokenizer
) -> None:
    library = tokenizers.Tokenizer.from_str(smollm2_files.tokenizer_json.decode())
    for text in varied_texts(400, seed=2):
        ids = smollm2_tokenizer.encode(text)
        deltas = streamed(smollm2_tokenizer, ids)
        assert "".join(deltas) == library.decode(ids, skip_special_tokens=False)


SPM_TEXTS = st.lists(
    st.sampled_from(["hello", " world", " ", "  ", "日本語", "👍🏽", "é", "\n", "ξένος", "z"]),
    max_size=8,
).map("".join)


@given(SPM_TEXTS)
def test_a_sentencepiece_text_streams_as_the_library_decodes_it(text: str) -> None:
    ids = SPM.encode(text)
    library = tokenizers.Tokenizer.from_str(json.dumps(SPM_FILE))
    assert "".join(streamed(SPM, ids)) == library.decode(ids)


@given(SPM_TEXTS, st.integers(1, 20))
def test_prompt_and_answer_are_one_text(text: str, num_prompt: int) -> None:
    """Only the opening of the whole loses its space, and a prompt without text is no opening."""
    ids = [1, *SPM.encode(text)]
    prompt, answer = ids[:num_prompt], ids[num_prompt:]
    whole = b"".join(
        [SPM.opening_bytes(i) if n == 1 else SPM.token_bytes(i) for n, i in enumerate(ids)]
    )
    start = len(b"".join(map(SPM.token_bytes, prompt)))
    data = b"".join(map(SPM.token_bytes, ids))
    expected = whole if num_prompt == 1 else data[start:]
    assert "".join(streamed(SPM, answer, prompt)) == one_shot(expected)


def test_an_answer_keeps_the_space_that_parts_it_from_its_prompt() -> None:
    prompt, answer = SPM.encode("hello"), SPM.encode("world")
    assert "".join(streamed(SPM, answer, prompt)) == " world"
    assert "".join(streamed(SPM, answer, [1])) == "world"


@pytest.mark.parametrize("content", [unigram(), unigram(prepend_scheme="never")])
@given(st.lists(st.integers(3, 11), max_size=8))
def test_a_metaspace_text_streams_as_the_library_decodes_it(
    content: dict[str, Any], ids: list[int]
) -> None:
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert "".join(streamed(loaded(content), ids)) == library.decode(ids)
