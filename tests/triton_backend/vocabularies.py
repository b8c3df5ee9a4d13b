"""Small tokenizers for tests of the text stage, as tokenizer.json: byte-level and SentencePiece style."""

import json
from collections.abc import Sequence
from typing import Any

from tests.models import byte_alphabet
from triton_backend.tokenizer import Tokenizer

MARK = "▁"
SPACE_BECOMES_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
MARK_IN_FRONT = {"type": "Prepend", "prepend": MARK}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
BYTE_FALLBACK_DECODERS = [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


def added(token_id: int, content: str, **traits: bool) -> dict[str, Any]:
    """One entry of `added_tokens`; a special token unless told otherwise."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, **plain, "special": True, **traits}


def definition(model: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A tokenizer.json whose parts are null unless given."""
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(names), "model": model, **parts}


def byte_level(*tokens: dict[str, Any], merges: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Id b is byte b; merges follow from 256 on, then the added `tokens` with the ids they say."""
    vocab = {token: byte for byte, token in enumerate(byte_alphabet())}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    return definition(
        {"type": "BPE", "vocab": vocab, "merges": [list(pair) for pair in merges]},
        added_tokens=list(tokens),
        pre_tokenizer={
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        decoder={
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    )


def sentencepiece(*, front: str, strip: bool = True) -> dict[str, Any]:
    """A SentencePiece-style BPE over a few letters, CJK and all bytes.

    `front` says who puts the space in front: `normalizer` (old Llama files) or a scheme of `Metaspace`.
    """
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [MARK, *"abcdehlorwtxyz.,!?日本語é", MARK * 2]
    merges = [(MARK, "h"), ("l", "l"), ("e", "ll"), (MARK + "h", "ell"), (MARK + "hell", "o")]
    merges += [(MARK, "w"), ("o", "r"), ("日", "本"), (MARK, MARK)]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    model = {"type": "BPE", "vocab": vocab, "merges": [list(pair) for pair in merges]}
    model |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    normalizer = {"type": "Sequence", "normalizers": [MARK_IN_FRONT, SPACE_BECOMES_MARK]}
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": front, "split": False}
    return definition(
        model,
        added_tokens=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        normalizer=normalizer if front == "normalizer" else None,
        pre_tokenizer=None if front == "normalizer" else metaspace,
        decoder={"type": "Sequence", "decoders": BYTE_FALLBACK_DECODERS + [STRIP] * strip},
    )


def unigram(**decoder: Any) -> dict[str, Any]:
    """A Unigram model whose vocabulary holds its own control tokens as ordinary pieces."""
    pieces = ["<unk>", "<s>", "</s>", MARK, *"</s>abc", MARK + "a", MARK * 3]
    vocab = [[piece, 0.0 if index < 3 else -float(index)] for index, piece in enumerate(pieces)]
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}
    return definition(
        {"type": "Unigram", "unk_id": 0, "vocab": vocab},
        added_tokens=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        pre_tokenizer={**metaspace, "split": False},
        decoder={**metaspace, **decoder},
    )


def loaded(content: dict[str, Any], bos_token_id: int | None = None) -> Tokenizer:
    """Load it; with `bos_token_id`, prompts begin with that token."""
    add_bos = bos_token_id is not None
    return Tokenizer(json.dumps(content).encode(), bos_token_id=bos_token_id, add_bos=add_bos)
