"""The tokenizers that are built from GGUF metadata give the ids of llama.cpp, special tokens parsed or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, trainers

from builder.checkpoint.gguf_bpe import PRE_TOKENIZERS
from builder.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from builder.checkpoint.sources.gguf_file import read_gguf
from tests.llama_cpp import LlamaCpp
from tests.models import smollm2_gguf, tiny_gguf
from tests.texts import varied_texts

FEWER = 300
SMALLEST = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def differences(gguf: Path, texts: list[str]) -> list[str]:
    """Give the texts, as ASCII, that get other ids than in llama.cpp, in either mode."""
    files = read_gguf_tokenizer(read_gguf(gguf).metadata)
    ours = Tokenizer.from_buffer(files.tokenizer_json)
    different: list[str] = []
    with LlamaCpp(gguf) as theirs:
        for parse_special in (True, False):
            ours.encode_special_tokens = not parse_special
            # Without a "<" there is no special token in a text, so one mode is enough.
            compared = [text for text in texts if parse_special or "<" in text]
            encoded = ours.encode_batch(compared, add_special_tokens=False)
            different += [
                ascii(text)
                for text, ids in zip(compared, encoded, strict=True)
                if ids.ids != theirs.encode(text, parse_special=parse_special)
            ]
    return different


@pytest.fixture(scope="module")
def smollm2_tokenizer() -> dict[str, Any]:
    """Tokenizer metadata of the real model."""
    metadata = read_gguf(smollm2_gguf()).metadata
    return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}


@pytest.mark.model
def test_smollm2_gives_the_ids_of_llama_cpp_on_2000_distinct_texts() -> None:
    texts = varied_texts(2100)
    assert len(set(texts)) >= 2000
    assert differences(smollm2_gguf(), texts) == []


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_gives_the_ids_of_llama_cpp_on_20000_texts() -> None:
    assert differences(smollm2_gguf(), varied_texts(20000, seed=1)) == []


@pytest.mark.model
@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2"])
def test_the_commonest_pre_tokenizers_give_the_ids_of_llama_cpp(
    pre: str, smollm2_tokenizer: Mapping[str, Any], tmp_path: Path
) -> None:
    metadata = {**smollm2_tokenizer, "tokenizer.ggml.pre": pre}
    gguf = tiny_gguf(tmp_path / "m.gguf", metadata=metadata, vocab_size=49152, **SMALLEST)
    assert differences(gguf, varied_texts(FEWER, seed=2)) == []


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_gives_the_ids_of_llama_cpp_on_2500_texts(
    pre: str, smollm2_tokenizer: Mapping[str, Any], tmp_path: Path
) -> None:
    metadata = {**smollm2_tokenizer, "tokenizer.ggml.pre": pre}
    gguf = tiny_gguf(tmp_path / "m.gguf", metadata=metadata, vocab_size=49152, **SMALLEST)
    assert differences(gguf, varied_texts(2500, seed=3)) == []


def sentencepiece_metadata(**overrides: Any) -> dict[str, Any]:
    """Train a small SentencePiece-like vocabulary and give its GGUF metadata."""
    corpus = [
        text
        for text in varied_texts(1500, seed=99)
        if "<" not in text
        and "\0" not in text
        and all(ord(character) < 0x600 for character in text)
    ]
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    trained.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=2000, show_progress=False))
    learned = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    pieces = sorted(
        (text for text, _ in learned), key=lambda text: len(text) == 1
    )  # as SentencePiece does
    fixed = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    extra = ["<|im_end|>", "<tool>", "[PAD1]"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*fixed, *pieces, *extra],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces), 3, 4, 5],
        "tokenizer.ggml.scores": [0.0] * 259
        + [-float(rank) for rank in range(len(pieces))]
        + [-1e3] * 3,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.add_bos_token": None,
        "tokenizer.ggml.eos_token_id": 2,
        **overrides,
    }


@pytest.mark.parametrize("has_prefix", [True, False])
def test_a_sentencepiece_vocabulary_gives_the_ids_of_llama_cpp(
    has_prefix: bool, tmp_path: Path
) -> None:
    metadata = sentencepiece_metadata(**{"tokenizer.ggml.add_space_prefix": has_prefix})
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    gguf = tiny_gguf(tmp_path / "m.gguf", metadata=metadata, vocab_size=vocab_size, **SMALLEST)
    texts = [*varied_texts(1000, seed=4), "<tool> x <tool>y", "a<tool>", "▁▁a ▁b", "[PAD1]", " <s>"]
    assert differences(gguf, texts) == []


def test_a_sentencepiece_prompt_begins_with_the_begin_token_as_in_llama_cpp(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata()
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    gguf = tiny_gguf(tmp_path / "m.gguf", metadata=metadata, vocab_size=vocab_size, **SMALLEST)
    files = read_gguf_tokenizer(read_gguf(gguf).metadata)
    ids = Tokenizer.from_buffer(files.tokenizer_json).encode("of the", add_special_tokens=False).ids
    with LlamaCpp(gguf) as theirs:
        assert [*files.prefix_ids, *ids] == theirs.encode(
            "of the", parse_special=True, add_special=True
        )


def test_the_tiny_byte_vocabulary_gives_the_ids_of_llama_cpp(tmp_path: Path) -> None:
    assert differences(tiny_gguf(tmp_path / "m.gguf"), varied_texts(FEWER, seed=5)) == []
