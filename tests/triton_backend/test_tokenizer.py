"""Encoding: the library's ids, control tokens only where they are meant, the begin token once."""

import json
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import CheckpointError, RequestError, UnsupportedError
from tests.texts import varied_texts
from tests.triton_backend.vocabularies import (
    BYTE_FALLBACK_DECODERS,
    STRIP,
    added,
    byte_level,
    loaded,
    sentencepiece,
    unigram,
)
from triton_backend.segments import Segment, SegmentKind
from triton_backend.tokenizer import Tokenizer, check_tokenizer

FRONTS = ("normalizer", "always", "first", "never")
END = byte_level(added(256, "<|end|>"), added(257, "<|end|>>"), added(258, "<b>"))
ENDS_A_TEXT = byte_level(added(256, "<s>"), merges=[("<", "s"), ("<s", ">")])
ENDS_A_TEXT["pre_tokenizer"]["use_regex"] = False
ENDS_A_TEXT["added_tokens"][0]["id"] = 257
PIECES = st.lists(
    st.sampled_from(["<s>", "</s>", "<unk>", "hello", " ", "  ", "\n", "日本", "é", "👍", "x"]),
    max_size=8,
)


def library_ids(content: dict[str, Any], text: str) -> list[int]:
    """What the tokenizers library gives where special tokens count."""
    ids: list[int] = (
        tokenizers.Tokenizer.from_str(json.dumps(content))
        .encode(text, add_special_tokens=False)
        .ids
    )
    return ids


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")


@pytest.mark.model
def test_the_real_tokenizer_gives_the_ids_of_the_library(
    smollm2_files: TokenizerFiles, smollm2_tokenizer: Tokenizer
) -> None:
    library = tokenizers.Tokenizer.from_str(smollm2_files.tokenizer_json.decode())
    for text in varied_texts(400):
        assert smollm2_tokenizer.encode_with_control(text) == library.encode(text).ids
    library.encode_special_tokens = True
    for text in varied_texts(400):
        assert smollm2_tokenizer.encode(text) == library.encode(text).ids


@pytest.mark.model
def test_no_text_reaches_a_control_token_of_the_real_tokenizer(
    smollm2_files: TokenizerFiles, smollm2_tokenizer: Tokenizer
) -> None:
    library = tokenizers.Tokenizer.from_str(smollm2_files.tokenizer_json.decode())
    for text in [*varied_texts(400, seed=1), *smollm2_tokenizer.control_strings]:
        ids = smollm2_tokenizer.encode(text)
        assert all(smollm2_tokenizer.token_bytes(token_id) for token_id in ids)
        assert text_of(smollm2_tokenizer, ids) == library.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("front", FRONTS)
@given(pieces=PIECES)
def test_a_space_in_front_is_put_where_the_library_puts_it(front: str, pieces: list[str]) -> None:
    content = sentencepiece(front=front)
    text = "".join(pieces)
    assert loaded(content).encode_with_control(text) == library_ids(content, text)


@pytest.mark.parametrize("front", FRONTS)
def test_special_tokens_in_a_text_stay_text_without_another_space(front: str) -> None:
    tokenizer = loaded(sentencepiece(front=front))
    ids = tokenizer.encode("x </s><s>hello")
    assert not {1, 2} & set(ids)
    assert text_of(tokenizer, ids).removeprefix(" ") == "x </s><s>hello"


def test_a_control_token_that_merges_reach_is_spelled_out() -> None:
    tokenizer = loaded(ENDS_A_TEXT)
    assert tokenizer.encode("a<s>b") == list(b"a<s>b")
    assert tokenizer.encode_with_control("a<s>b") == [ord("a"), 257, ord("b")]


def test_a_byte_level_space_in_front_is_put_once_for_each_text() -> None:
    content = json.loads(json.dumps(ENDS_A_TEXT))
    content["pre_tokenizer"]["add_prefix_space"] = True
    tokenizer = loaded(content)
    assert tokenizer.encode("a<s>b") == list(b" a<s>b")
    assert tokenizer.encode_with_control("a<s>b") == library_ids(content, "a<s>b")


def test_a_control_token_that_a_unigram_model_reaches_is_spelled_out() -> None:
    tokenizer = loaded(unigram())
    ids = tokenizer.encode("a</s><s>b")
    assert not {1, 2} & set(ids)
    assert text_of(tokenizer, ids) == " a</s><s>b"


def test_the_unknown_token_may_stand_for_text() -> None:
    assert 0 in loaded(unigram()).encode("a日b")


@pytest.mark.parametrize("normalized", [False, True])
def test_an_added_token_that_is_not_special_is_text_both_ways(normalized: bool) -> None:
    tool = added(256, "<tool>", special=False, normalized=normalized)
    tokenizer = loaded(byte_level(tool, added(257, "<é>", special=False)))
    assert tokenizer.encode("a<tool><é>") == [97, 256, 257]
    assert text_of(tokenizer, [256, 257]) == "<tool><é>"
    assert tokenizer.control_strings == frozenset()


@pytest.mark.parametrize("normalized", [False, True])
def test_a_special_token_in_a_text_stays_text_however_it_is_matched(normalized: bool) -> None:
    tokenizer = loaded(byte_level(added(256, "<x>", normalized=normalized)))
    assert tokenizer.encode("<x>") == list(b"<x>")
    assert tokenizer.encode_with_control("<x>") == [256]


@pytest.mark.parametrize(
    "traits", [{"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]
)
@pytest.mark.parametrize(
    "text", ["a \n<x>\u3000 b", "<x>", " <x>", "<x> ", " <x> <x>  c ", "a<x>\x1fb"]
)
def test_control_tokens_swallow_the_white_space_that_the_library_lets_them(
    traits: dict[str, bool], text: str
) -> None:
    content = byte_level(added(256, "<x>", **traits))
    assert loaded(content).encode_with_control(text) == library_ids(content, text)


def test_the_longest_control_string_counts() -> None:
    assert loaded(END).encode_with_control("<|end|>>x") == [257, ord("x")]


def test_completions_begin_with_the_begin_token_once() -> None:
    tokenizer = loaded(END, bos_token_id=258)
    assert tokenizer.encode("hi") == [258, *b"hi"]
    assert tokenizer.encode("<b>hi") == [258, *b"<b>hi"]
    assert tokenizer.encode_with_control("hi") == [258, *b"hi"]
    assert tokenizer.encode_with_control("<b>hi") == [258, *b"hi"]
    assert tokenizer.encode("") == [258]


def test_segments_get_no_begin_token_but_their_own() -> None:
    tokenizer = loaded(END, bos_token_id=258)
    hi = Segment(SegmentKind.TEXT, "hi")
    assert tokenizer.encode_segments([hi]) == [*b"hi"]
    assert tokenizer.encode_segments([Segment(SegmentKind.CONTROL, "<b>"), hi]) == [258, *b"hi"]


def test_without_a_begin_token_nothing_is_added() -> None:
    assert loaded(END).encode("hi") == [*b"hi"]
    assert Tokenizer(json.dumps(END).encode(), bos_token_id=258, add_bos=False).encode("") == []


def test_texts_side_by_side_are_encoded_as_one() -> None:
    tokenizer = loaded(sentencepiece(front="always"))
    halves = [Segment(SegmentKind.TEXT, text) for text in ("hel", "", "lo")]
    assert tokenizer.encode_segments(halves) == tokenizer.encode("hello")


@pytest.mark.parametrize("text", ["ab\ud800", "\udc00"])
def test_half_of_a_surrogate_pair_is_refused_without_quoting_the_text(text: str) -> None:
    with pytest.raises(
        RequestError, match=f"surrogate pair at character {len(text) - 1};"
    ) as caught:
        loaded(END).encode(text)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_control_segment_that_is_none_is_refused_without_quoting_it() -> None:
    segments = [Segment(SegmentKind.TEXT, "a"), Segment(SegmentKind.CONTROL, "secret")]
    with pytest.raises(
        RequestError, match="segment 1 of the prompt is not a control token"
    ) as caught:
        loaded(END).encode_segments(segments)
    assert "secret" not in str(caught.value)


def test_truncation_and_padding_of_the_file_are_left_out() -> None:
    content = byte_level(added(256, "<x>"))
    content["truncation"] = {
        "direction": "Right",
        "max_length": 3,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 256,
        "pad_type_id": 0,
        "pad_token": "<x>",
    }
    assert loaded(content).encode("hello") == [*b"hello"]


def with_a_hole() -> dict[str, Any]:
    """A vocabulary whose only control token has id 300, far behind the others."""
    content = byte_level(added(300, "<x>"))
    content["model"]["vocab"]["<x>"] = 300
    return content


def test_ids_without_text_give_no_bytes() -> None:
    tokenizer = loaded(with_a_hole())
    assert tokenizer.vocab_size == 301
    assert [tokenizer.token_bytes(i) for i in (-1, 299, 300, 301, 10**9)] == [b""] * 5


def test_a_vocabulary_with_holes_keeps_its_ids() -> None:
    assert loaded(with_a_hole()).encode_with_control("a<x>") == [97, 300]


def test_an_added_token_that_the_library_gives_another_id_is_refused() -> None:
    with pytest.raises(CheckpointError, match="'<x>' the id 300, but it loads as 256"):
        check_tokenizer(json.dumps(byte_level(added(300, "<x>"))).encode())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"", "tokenizer.json is broken"),
        (b"[]", "tokenizer.json is broken"),
        (b"{}", "tokenizer.json is broken"),
        (b'{"model": {"type": "BPE"}, "added_tokens": 3}', "tokenizer.json is broken"),
        (b'\xff{"model": {}}', "tokenizer.json is broken"),
        (json.dumps({**END, "model": {"type": "BPE"}}).encode(), "tokenizer.json can't be loaded"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(broken: bytes, message: str) -> None:
    for read in (check_tokenizer, lambda data: Tokenizer(data, bos_token_id=None, add_bos=False)):
        with pytest.raises(CheckpointError, match=message) as caught:
            read(broken)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "value", "name"),
    [
        ("decoder", None, "None"),
        ("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}, "WordPiece"),
        ("decoder", {"type": "Sequence", "decoders": BYTE_FALLBACK_DECODERS[:2]}, "Sequence"),
        (
            "decoder",
            {"type": "Sequence", "decoders": [*BYTE_FALLBACK_DECODERS, {**STRIP, "stop": 1}]},
            r"Sequence\[Replace, ByteFallback, Fuse, Strip\]",
        ),
        (
            "decoder",
            {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"Regex": "x"}, "content": " "},
                    *BYTE_FALLBACK_DECODERS[1:],
                ],
            },
            r"Sequence\[Replace, ByteFallback, Fuse\]",
        ),
        ("model", {**END["model"], "dropout": 0.1}, "BPE dropout"),
        ("added_tokens", [added(256, "<mask>", single_word=True)], "'<mask>' has single_word"),
        ("added_tokens", [added(256, "<" * 257)], "<<'... has 257 characters; at most 256"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(part: str, value: Any, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        check_tokenizer(json.dumps({**END, part: value}).encode())


@pytest.mark.parametrize("bos_token_id", [None, -1, 259])
def test_a_begin_token_outside_the_vocabulary_is_refused(bos_token_id: int | None) -> None:
    with pytest.raises(CheckpointError, match=f"bos_token_id is {bos_token_id}"):
        Tokenizer(json.dumps(END).encode(), bos_token_id=bos_token_id, add_bos=True)


def test_what_is_supported_passes_the_check() -> None:
    nested = [added(254 + length, "<" * length) for length in range(2, 257)]
    assert loaded(byte_level(*nested)).encode_with_control("<" * 257) == [510, ord("<")]
    check_tokenizer(json.dumps(sentencepiece(front="first")).encode())
    check_tokenizer(json.dumps(unigram()).encode())
