"""Bytes of tokens under each supported decoder, against the tokenizers library's own."""

import json

import pytest
import tokenizers

from builder.errors import UnsupportedError
from tests.models import byte_alphabet
from tests.triton_backend.vocabularies import (
    MARK,
    added,
    byte_level,
    loaded,
    sentencepiece,
    unigram,
)
from triton_backend.token_bytes import decoder_of, token_bytes


def test_the_byte_level_alphabet_stands_for_all_bytes() -> None:
    tokenizer = loaded(byte_level())
    assert [tokenizer.token_bytes(byte) for byte in range(256)] == [bytes([b]) for b in range(256)]


def test_a_byte_level_token_outside_the_alphabet_is_spelled_as_it_reads() -> None:
    content = byte_level()
    content["model"]["vocab"] |= {"日Ġ": 256, "Ġa": 257}
    tokenizer = loaded(content)
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert tokenizer.token_bytes(256) == "日Ġ".encode() == library.decode([256]).encode()
    assert tokenizer.token_bytes(257) == b" a"


def test_an_added_token_of_a_byte_level_vocabulary_is_spelled_as_it_reads() -> None:
    """The library's decoder breaks it: "é" is a letter of the byte alphabet, for byte 0xE9."""
    assert loaded(byte_level(added(256, "café", special=False))).token_bytes(256) == "café".encode()


@pytest.mark.parametrize("strip", [False, True])
def test_sentencepiece_tokens_give_spaces_and_bytes(strip: bool) -> None:
    content = sentencepiece(front="always", strip=strip)
    vocab = content["model"]["vocab"]
    tokenizer = loaded(content)
    assert tokenizer.token_bytes(vocab["<0x0A>"]) == b"\n"
    assert tokenizer.token_bytes(vocab["<0xE6>"]) == b"\xe6"
    assert tokenizer.token_bytes(vocab[MARK + "hello"]) == b" hello"
    assert tokenizer.token_bytes(vocab["日本"]) == "日本".encode()
    assert tokenizer.token_bytes(vocab["</s>"]) == b""
    assert tokenizer.opening_bytes(vocab[MARK * 2]) == (b" " if strip else b"  ")
    assert tokenizer.opening_bytes(vocab["<0x20>"]) == (b"" if strip else b" ")


@pytest.mark.parametrize(
    ("settings", "opening"),
    [
        ({"prepend_scheme": "always"}, b"a"),
        ({"prepend_scheme": "first"}, b"a"),
        ({"prepend_scheme": "never"}, b" a"),
        ({"prepend_scheme": "never", "add_prefix_space": False}, b" a"),
    ],
)
def test_a_metaspace_token_loses_its_marks_where_it_opens_a_text(
    settings: dict[str, str], opening: bytes
) -> None:
    content = unigram(**settings)
    token_id = [piece for piece, _ in content["model"]["vocab"]].index(MARK + "a")
    tokenizer = loaded(content)
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert tokenizer.opening_bytes(token_id) == opening == library.decode([token_id]).encode()
    assert tokenizer.token_bytes(token_id) == b" a"


def test_every_mark_of_a_metaspace_token_goes_as_in_the_library() -> None:
    content = unigram()
    token_id = [piece for piece, _ in content["model"]["vocab"]].index(MARK * 3)
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert loaded(content).opening_bytes(token_id) == b"" == library.decode([token_id]).encode()


def test_a_sequence_of_one_decoder_is_that_decoder() -> None:
    content = byte_level()
    content["decoder"] = {"type": "Sequence", "decoders": [content["decoder"]]}
    assert loaded(content).token_bytes(byte_alphabet().index("Ġ")) == b" "


def test_an_empty_vocabulary_has_no_bytes() -> None:
    table = token_bytes({}, decoder_of({"type": "ByteLevel"}), control=(), added=())
    assert table.pieces == ()
    assert table[0] == table.opening(0) == b""


def test_an_unknown_decoder_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(
        UnsupportedError, match=r"decoder CTC is not .* ByteLevel, Metaspace, Sequence"
    ):
        decoder_of({"type": "CTC"})
