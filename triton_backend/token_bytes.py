"""The bytes of text that each token id stands for, worked out once from a tokenizer's decoder.

Supported decoders: `ByteLevel`; `Metaspace`; `Sequence[Replace, ByteFallback, Fuse]` with or without a
`Strip` of the one space that opens a text (SentencePiece style). Every other one is refused by name.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from builder.errors import UnsupportedError

SUPPORTED = "ByteLevel, Metaspace, Sequence[Replace, ByteFallback, Fuse], and the same with Strip"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Decoder:
    """How a token's spelling in the vocabulary turns into bytes."""

    piece: Callable[[str], bytes]
    """The token anywhere in a text."""
    opening: Callable[[str], bytes]
    """The token where it is the first one that gives text."""
    added_is_raw: bool
    """Added tokens are spelled as they read, not in the alphabet of the vocabulary."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes by token id; ids without text (control tokens, holes in the vocabulary) give none."""

    pieces: tuple[bytes, ...]
    openings: Mapping[int, bytes]
    """Only the ids whose bytes differ at the opening of a text."""

    def __getitem__(self, token_id: int) -> bytes:
        """Give the bytes of `token_id`; ids past the vocabulary (padded logits) give none."""
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else b""

    def opening(self, token_id: int) -> bytes:
        """Give the bytes of `token_id` where it is the first token of a text."""
        return self.openings.get(token_id, self[token_id])


def token_bytes(
    vocabulary: Mapping[str, int],
    decoder: Decoder,
    *,
    control: Collection[int],
    added: Collection[int],
) -> TokenBytes:
    """Work out the bytes of every id of `vocabulary`.

    `control` ids give no bytes. `added` are the ids of all added tokens, control or not.
    """
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    openings = {}
    for token, token_id in vocabulary.items():
        if token_id in control:
            continue
        if decoder.added_is_raw and token_id in added:
            pieces[token_id] = token.encode()
            continue
        pieces[token_id] = decoder.piece(token)
        opening = decoder.opening(token)
        if opening != pieces[token_id]:
            openings[token_id] = opening
    return TokenBytes(tuple(pieces), openings)


def decoder_of(definition: object) -> Decoder:
    """Read the `decoder` of a tokenizer.json.

    Raises:
        UnsupportedError: the decoder is none of the supported ones; the message names it.
    """
    steps = _steps(definition)
    match [step.get("type") for step in steps]:
        case ["ByteLevel"]:
            return Decoder(_byte_level, _byte_level, added_is_raw=True)
        case ["Metaspace"]:
            return _metaspace(steps[0])
        case ["Replace", "ByteFallback", "Fuse"]:
            return _sentencepiece(definition, steps[0], {"content": " ", "start": 0, "stop": 0})
        case ["Replace", "ByteFallback", "Fuse", "Strip"]:
            return _sentencepiece(definition, steps[0], steps[3])
    raise _unsupported(definition)


def _steps(definition: object) -> list[dict[str, Any]]:
    steps = [definition]
    if isinstance(definition, dict) and definition.get("type") == "Sequence":
        steps = definition.get("decoders", [])
    return [step for step in steps if isinstance(step, dict)]


def _byte_level(token: str) -> bytes:
    """Undo the byte-level alphabet; a token with any other character is spelled as it reads."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """Give the byte of each character: printable Latin-1 stands for itself, the rest follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()


def _metaspace(step: Mapping[str, Any]) -> Decoder:
    mark = step.get("replacement", "▁")
    keeps = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
    gone = " " if keeps else ""

    def piece(token: str) -> bytes:
        return token.replace(mark, " ").encode()

    def opening(token: str) -> bytes:
        # All marks of the first token go, not only its first: so says the published decoder.
        return token.replace(mark, gone).encode()

    return Decoder(piece, opening, added_is_raw=False)


def _sentencepiece(
    definition: object, replace: Mapping[str, Any], strip: Mapping[str, Any]
) -> Decoder:
    pattern = replace.get("pattern")
    mark = pattern.get("String") if isinstance(pattern, dict) else None
    content = replace.get("content")
    stripped = strip.get("start")
    if not (isinstance(mark, str) and isinstance(content, str)):
        raise _unsupported(definition)
    if strip.get("content") != " " or strip.get("stop") != 0 or stripped not in (0, 1):
        raise _unsupported(definition)

    def piece(token: str) -> bytes:
        token = token.replace(mark, content)
        byte = BYTE_TOKEN.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else token.encode()

    def opening(token: str) -> bytes:
        whole = piece(token)
        return whole.removeprefix(b" ") if stripped else whole

    return Decoder(piece, opening, added_is_raw=False)


def _unsupported(definition: object) -> UnsupportedError:
    names = [str(step.get("type")) for step in _steps(definition)]
    kind = definition.get("type") if isinstance(definition, dict) else None
    name = f"Sequence[{', '.join(names)}]" if kind == "Sequence" else str(kind)
    return UnsupportedError(
        f"the tokenizer's decoder {name} is not supported with these settings; supported: {SUPPORTED}."
    )
