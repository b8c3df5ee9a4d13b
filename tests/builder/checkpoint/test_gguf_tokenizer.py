"""What the tokenizer built from GGUF metadata knows beside its ids, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from builder.checkpoint.gguf_bpe import PRE_TOKENIZERS, byte_alphabet
from builder.checkpoint.gguf_tokenizer import KINDS, read_gguf_tokenizer
from builder.checkpoint.sources.gguf_file import read_gguf
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import CheckpointError, UnsupportedError
from tests import models
from tests.models import CHAT_TEMPLATE, gguf_metadata, smollm2_gguf, tiny_config

PREFIX = "tokenizer.ggml."
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(**changed: Any) -> dict[str, Any]:
    """Give metadata of the tiny byte-level vocabulary, with keys changed; None drops one."""
    metadata = gguf_metadata(tiny_config()) | {
        PREFIX + key: value for key, value in changed.items()
    }
    return {key: value for key, value in metadata.items() if value is not None}


def sentencepiece(pieces: dict[str, float], **changed: Any) -> dict[str, Any]:
    """Give metadata of a SentencePiece vocabulary with these scored pieces."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces]
    return byte_level(
        model="llama",
        pre="default",
        tokens=tokens,
        token_type=[2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        scores=[0.0] * 259 + list(pieces.values()),
        merges=None,
        eos_token_id=None,
        add_bos_token=None,
    ) | {PREFIX + key: value for key, value in changed.items()}


def end_ids(files: TokenizerFiles) -> tuple[int, ...]:
    return tuple(token.id for token in files.end_tokens)


def pieces_of(files: TokenizerFiles, text: str, *, parse_special: bool = False) -> list[str]:
    tokenizer = Tokenizer.from_buffer(files.tokenizer_json)
    tokenizer.encode_special_tokens = not parse_special
    return list(tokenizer.encode(text, add_special_tokens=False).tokens)


def test_ids_template_and_end_tokens_come_from_the_metadata() -> None:
    files = read_gguf_tokenizer(byte_level(bos_token_id=257))
    assert files.num_tokens == 259
    assert files.chat_template == CHAT_TEMPLATE
    assert files.named_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert (files.bos_token_id, files.prefix_ids, files.suffix_ids) == (257, (), ())
    assert {token.id: token.sources for token in files.end_tokens} == {
        256: ("known turn end <|endoftext|>",),
        258: ("tokenizer.ggml.eos_token_id", "known turn end <|im_end|>"),
    }


def test_end_of_turn_and_end_of_message_also_end_answers() -> None:
    files = read_gguf_tokenizer(byte_level(eot_token_id=10, eom_token_id=11))
    assert end_ids(files) == (10, 11, 256, 258)


def test_begin_and_end_tokens_are_added_when_the_metadata_says_so() -> None:
    files = read_gguf_tokenizer(
        byte_level(bos_token_id=257, add_bos_token=True, add_eos_token=True)
    )
    assert (files.prefix_ids, files.suffix_ids) == ((257,), (258,))


def test_llama3_prompts_begin_with_the_begin_token_unless_the_metadata_says_otherwise() -> None:
    llama3 = {"pre": "llama-bpe", "bos_token_id": 257}
    assert read_gguf_tokenizer(byte_level(**llama3, add_bos_token=None)).prefix_ids == (257,)
    assert read_gguf_tokenizer(byte_level(**llama3, add_bos_token=False)).prefix_ids == ()


def test_special_tokens_in_text_stay_text_when_asked() -> None:
    files = read_gguf_tokenizer(byte_level())
    assert pieces_of(files, "a<|im_end|>", parse_special=True) == ["a", "<|im_end|>"]
    assert "<|im_end|>" not in pieces_of(files, "a<|im_end|>")


def test_user_defined_tokens_are_found_in_text_in_both_modes() -> None:
    files = read_gguf_tokenizer(byte_level(token_type=[1] * 256 + [3, 4, 3]))
    for parse_special in (True, False):
        assert pieces_of(files, "a<|im_start|>", parse_special=parse_special) == [
            "a",
            "<|im_start|>",
        ]


def test_a_turn_end_that_is_typed_as_normal_is_special_all_the_same() -> None:
    files = read_gguf_tokenizer(byte_level(token_type=[1] * 259))
    assert end_ids(files) == (256, 258)
    assert pieces_of(files, "<|im_end|>", parse_special=True) == ["<|im_end|>"]


def test_bytes_that_have_no_token_are_dropped_and_stop_merges() -> None:
    alphabet = byte_alphabet()
    tokens = [alphabet[byte] for byte in range(256) if byte != 0x14] + ["ab"]
    files = read_gguf_tokenizer(
        byte_level(tokens=tokens, token_type=[1] * 256, merges=["a b"], eos_token_id=None)
    )
    assert pieces_of(files, "ab") == ["ab"]
    assert pieces_of(files, "a\x14b") == ["a", "b"]


def test_a_merge_may_begin_with_a_space() -> None:
    metadata = byte_level(tokens=[*byte_alphabet(), " a"], token_type=[1] * 257, eos_token_id=None)
    metadata[PREFIX + "merges"] = ["  a"]
    with pytest.raises(CheckpointError, match="can't be loaded by the tokenizers library"):
        read_gguf_tokenizer(metadata)  # read as " " and "a"; this vocabulary has no " "


def test_pieces_that_are_tokens_are_taken_whole_when_merges_are_ignored() -> None:
    tokens = {"tokens": [*byte_alphabet(), "abc"], "token_type": [1] * 257, "eos_token_id": None}
    assert pieces_of(read_gguf_tokenizer(byte_level(**tokens)), "abc") == ["a", "b", "c"]
    llama3 = byte_level(**tokens, pre="llama-bpe", bos_token_id=0)
    assert pieces_of(read_gguf_tokenizer(llama3), "abc") == ["abc"]


def test_empty_tokens_get_the_name_that_llama_cpp_gives_them() -> None:
    tokens = [*byte_alphabet(), "", ""]
    files = read_gguf_tokenizer(byte_level(tokens=tokens, token_type=[1] * 258, eos_token_id=None))
    assert "[EMPTY_257]" in Tokenizer.from_buffer(files.tokenizer_json).get_vocab()


def test_the_byte_alphabet_is_the_published_one() -> None:
    assert byte_alphabet() == models.byte_alphabet()
    assert len(set(byte_alphabet())) == 256


@pytest.mark.model
def test_no_special_token_of_the_real_model_can_be_spelled_in_text() -> None:
    files = read_gguf_tokenizer(read_gguf(smollm2_gguf()).metadata)
    tokenizer = Tokenizer.from_buffer(files.tokenizer_json)
    tokenizer.encode_special_tokens = True
    specials = {
        token_id: token.content for token_id, token in tokenizer.get_added_tokens_decoder().items()
    }
    assert len(specials) == 17
    for text in specials.values():
        assert not specials.keys() & set(tokenizer.encode(text, add_special_tokens=False).ids)


# SentencePiece

PIECES = {"▁a": -0.0, "ab": -1.0, "▁ab": -2.0, "▁": -3.0, "a": -4.0, "b": -5.0}


def test_sentencepiece_merges_the_highest_score_first_behind_a_space() -> None:
    files = read_gguf_tokenizer(sentencepiece(PIECES))
    assert pieces_of(files, "ab") == ["▁ab"]
    assert pieces_of(files, "aba") == ["▁ab", "a"]
    assert pieces_of(files, "é") == ["▁", "<0xC3>", "<0xA9>"]
    assert Tokenizer.from_buffer(files.tokenizer_json).decode([261, 260]) == "abab"


def test_sentencepiece_without_the_space_prefix() -> None:
    files = read_gguf_tokenizer(sentencepiece(PIECES, add_space_prefix=False))
    assert pieces_of(files, "ab ab") == ["ab", "▁ab"]
    assert Tokenizer.from_buffer(files.tokenizer_json).decode([260, 261]) == "ab ab"


def test_sentencepiece_has_default_begin_and_end_tokens() -> None:
    files = read_gguf_tokenizer(sentencepiece(PIECES))
    assert files.named_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert (files.prefix_ids, end_ids(files)) == ((1,), (2,))


def test_text_spelled_like_a_control_token_stays_text() -> None:
    pieces = dict.fromkeys(("<", "s", ">"), 0.0) | {"<s": -1.0, "▁": -2.0}
    files = read_gguf_tokenizer(sentencepiece(pieces))
    assert pieces_of(files, "<s>") == ["▁", "<s", ">"]
    assert pieces_of(files, "<0x41>").count("<0x41>") == 0


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ({"a": 0.0, "b": 0.0, "ab": -1.0, "ba": -1.0}, "tokens 'ab' and 'ba' have equal scores"),
        ({"a": 0.0, "ab": -1.0}, "token 'ab' has the character 'b', which is no token"),
    ],
)
def test_a_vocabulary_that_merging_by_score_does_not_settle_is_refused(
    pieces: dict[str, float], reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        read_gguf_tokenizer(sentencepiece(pieces))


def test_a_sentencepiece_vocabulary_needs_scores_and_byte_tokens() -> None:
    metadata = sentencepiece(PIECES)
    del metadata[PREFIX + "scores"]
    with pytest.raises(CheckpointError, match=r"lacks tokenizer\.ggml\.scores"):
        read_gguf_tokenizer(metadata)
    with pytest.raises(CheckpointError, match="add_space_prefix must be a bool"):
        read_gguf_tokenizer(sentencepiece(PIECES, add_space_prefix=1))
    metadata = sentencepiece(PIECES)
    metadata[PREFIX + "tokens"][3 + 0x41] = "strange"
    with pytest.raises(UnsupportedError, match="lacks the byte token <0x41>"):
        read_gguf_tokenizer(metadata)


# Refusals


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "t5"}, "unknown tokenizer.ggml.model 't5'.*Known: gpt2, llama"),
        ({"model": None}, "unknown tokenizer.ggml.model 'None'"),
        ({"pre": "tekken"}, "unknown tokenizer.ggml.pre 'tekken'.*llama-bpe.*smollm"),
        ({"precompiled_charsmap": [1]}, "precompiled_charsmap, which is not implemented"),
        (
            {"remove_extra_whitespaces": True},
            "remove_extra_whitespaces is True; only False is supported",
        ),
        ({"add_sep_token": True}, "add_sep_token is True"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        read_gguf_tokenizer(byte_level(**changed))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"pre": None}, "lacks tokenizer.ggml.pre"),
        ({"merges": None}, "lacks the list tokenizer.ggml.merges"),
        ({"merges": ["ab"]}, "'ab', which is not two tokens"),
        ({"merges": [7]}, "7, which is not two tokens"),
        ({"merges": ["x y"]}, "can't be loaded by the tokenizers library"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens must be a list of str"),
        ({"tokens": [1]}, "tokenizer.ggml.tokens must be a list of str"),
        ({"tokens": []}, "entries for 0 tokens"),
        ({"tokens": [*byte_alphabet(), "A", "b", "c"]}, "has 'A' twice"),
        ({"token_type": [1]}, "token_type has 1 entries for 259 tokens"),
        ({"token_type": [1.0] * 259}, "must be a list of int"),
        ({"eos_token_id": 259}, "eos_token_id is 259, outside the vocabulary of 259"),
        ({"bos_token_id": -1}, "bos_token_id is -1, outside"),
        ({"eot_token_id": "x"}, "eot_token_id is 'x', outside"),
        ({"add_bos_token": 1}, "add_bos_token must be a bool"),
        ({"add_bos_token": True}, "tokenizer.ggml.bos_token_id is absent"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        read_gguf_tokenizer(byte_level(**changed))


def test_a_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(CheckpointError, match="chat_template must be text"):
        read_gguf_tokenizer(byte_level() | {"tokenizer.chat_template": 7})


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_makes_a_tokenizer_that_loads(pre: str) -> None:
    files = read_gguf_tokenizer(byte_level(pre=pre, bos_token_id=257))
    assert pieces_of(files, "1a") == ["1", "a"]


def test_the_tokenizer_is_the_same_bytes_every_time() -> None:
    once, again = (read_gguf_tokenizer(byte_level()).tokenizer_json for _ in range(2))
    assert once == again
    assert json.loads(once)["truncation"] is None


def test_every_kind_is_tested_against_llama_cpp() -> None:
    parity = Path(__file__).with_name("test_llama_cpp_parity.py").read_text()
    assert KINDS.keys() == {"gpt2", "llama"}
    assert '"tokenizer.ggml.model": "llama"' in parity
