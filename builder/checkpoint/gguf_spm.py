"""tokenizer.json for GGUF's `llama` vocabularies: SentencePiece BPE with scores and byte fallback.

SentencePiece merges the neighbours whose union has the highest score, the leftmost of equals. tokenizer.json
ranks pairs instead: each token is split in all ways, and its pairs get the rank of its score, the longest
left part first, as merging from the left meets them. Two tokens of equal score have no such order, and are
refused; trained vocabularies have none.

Control and byte tokens take no part in merging: a text spelled `<s>` stays text. (llama.cpp may merge it into
the control token when the vocabulary happens to have a token `<s`.)
"""

from collections.abc import Mapping
from typing import Any

from builder.checkpoint.gguf_vocabulary import NORMAL, UNUSED, GgufVocabulary
from builder.errors import CheckpointError, UnsupportedError

SPACE = "▁"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def build_spm(vocabulary: GgufVocabulary, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Give the content of tokenizer.json.

    Raises:
        CheckpointError: scores are missing, or a setting is of the wrong kind.
        UnsupportedError: the vocabulary needs more than merging by score with byte tokens.
    """
    if "tokenizer.ggml.scores" not in metadata:
        raise CheckpointError("the GGUF file lacks tokenizer.ggml.scores")
    ids = {text: token_id for token_id, text in enumerate(vocabulary.texts)}
    if missing := [text for text in BYTES if text not in ids]:
        raise UnsupportedError(
            f"the vocabulary lacks the byte token {missing[0]}; others are not supported"
        )
    has_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    if type(has_prefix) is not bool:
        raise CheckpointError("tokenizer.ggml.add_space_prefix must be a bool")
    prefix = [{"type": "Prepend", "prepend": SPACE}] if has_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    return {
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, _replace(" ", SPACE)]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": ids,
            "merges": _merges(vocabulary),
        },
    }


def _merges(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Give the pairs to merge, highest score first; of one token's pairs, the longest left part first."""
    pieces = {
        text: vocabulary.scores[token_id]
        for token_id, text in enumerate(vocabulary.texts)
        if vocabulary.types[token_id] in (NORMAL, UNUSED) and not vocabulary.is_special(token_id)
    }
    ranked: list[tuple[float, int, str, str]] = []
    reached: dict[float, str] = {}
    for text, score in pieces.items():
        if strange := [character for character in text if character not in pieces]:
            raise UnsupportedError(
                f"token {text!r} has the character {strange[0]!r}, which is no token; not supported"
            )
        for at in range(1, len(text)):
            left, right = text[:at], text[at:]
            if left in pieces and right in pieces:
                ranked.append((-score, -at, left, right))
                if reached.setdefault(score, text) != text:
                    raise UnsupportedError(
                        f"tokens {reached[score]!r} and {text!r} have equal scores; not supported"
                    )
    ranked.sort()
    return [(left, right) for _, _, left, right in ranked]


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}
