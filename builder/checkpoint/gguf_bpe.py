"""tokenizer.json for GGUF's `gpt2` vocabularies: byte-level BPE with a named pre-tokenizer.

Where the tokenizer of the original checkpoint and llama.cpp differ, this follows llama.cpp, which is what a
GGUF file is made for and tested with:

- Bytes without a token are dropped, and no merge reaches across one (SmolLM2 lacks 0x04, 0x06, 0x13, 0x14,
  0x16, 0x1D and bytes that valid UTF-8 hardly has). The original drops them first and merges the neighbours.
- Text is not normalized. The original Qwen2 tokenizer applies NFC first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builder.checkpoint.gguf_vocabulary import GgufVocabulary
from builder.errors import CheckpointError, UnsupportedError, unknown_name

WORDS_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS_QWEN2 = WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is cut before merging."""

    patterns: tuple[str, ...]
    """Applied in order; what a pattern matches becomes a piece of its own."""
    ignore_merges: bool = False
    """A piece that is a token is taken whole, even where merges would not reach it."""
    add_bos: bool = False
    """Prompts begin with the begin token unless the metadata says otherwise."""


_GPT2 = PreTokenizer((WORDS_GPT2,))
_DIGITS = PreTokenizer((r"\p{N}", WORDS_GPT2))
_LLAMA3 = PreTokenizer((WORDS_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((WORDS_QWEN2,))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer((PUNCTUATION, WORDS_GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "olmo", "mpt", "phi-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx"), PreTokenizer((WORDS_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
}
"""By `tokenizer.ggml.pre`."""


def find_pre_tokenizer(metadata: Mapping[str, Any]) -> PreTokenizer:
    """Give the pre-tokenizer that the metadata names.

    Raises:
        CheckpointError: it names none. Files of before May 2024 don't, and llama.cpp guesses badly for them.
        UnsupportedError: it is unknown.
    """
    name = metadata.get("tokenizer.ggml.pre")
    if not isinstance(name, str):
        raise CheckpointError("the GGUF file lacks tokenizer.ggml.pre; convert the model again")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(unknown_name("tokenizer.ggml.pre", name, PRE_TOKENIZERS))
    return PRE_TOKENIZERS[name]


def build_bpe(vocabulary: GgufVocabulary, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Give the content of tokenizer.json.

    Raises:
        CheckpointError: merges or pre-tokenizer are missing, or a merge is not two tokens.
        UnsupportedError: the pre-tokenizer is unknown.
    """
    pre = find_pre_tokenizer(metadata)
    splits = [_split(pattern, "Isolated") for pattern in pre.patterns]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    vocab = {text: token_id for token_id, text in enumerate(vocabulary.texts)}
    missing = [character for character in byte_alphabet() if character not in vocab]
    drop = [_split("[" + "".join(map(_escaped, missing)) + "]", "Removed")] if missing else []
    return {
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level, *drop]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "ignore_merges": pre.ignore_merges,
            "vocab": vocab,
            "merges": _merges(metadata),
        },
    }


def byte_alphabet() -> list[str]:
    """Give the printable character that stands for each byte in byte-level vocabularies, `[256]`.

    Printable bytes stand for themselves; the others are numbered from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet: list[str] = []
    shifted = 0x100
    for byte in range(256):
        alphabet.append(chr(byte if byte in printable else shifted))
        shifted += byte not in printable
    return alphabet


def _merges(metadata: Mapping[str, Any]) -> list[list[str]]:
    """Give the pairs to merge, most wanted first. The first character may itself be a space."""
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise CheckpointError("the GGUF file lacks the list tokenizer.ggml.merges")
    pairs: list[list[str]] = []
    for merge in merges:
        at = merge.find(" ", 1) if isinstance(merge, str) else -1
        if at < 0:
            raise CheckpointError(f"tokenizer.ggml.merges has {merge!r}, which is not two tokens")
        pairs.append([merge[:at], merge[at + 1 :]])
    return pairs


def _split(pattern: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _escaped(character: str) -> str:
    return f"\\x{{{ord(character):X}}}"
