"""Text to token ids and ids to bytes, by a tokenizer.json and nothing else.

Special tokens that a text spells stay text, unless the caller says that control strings count. A
non-special added token is text both ways: text that spells it gives its id, and its id gives that text.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import tokenizers

from builder.errors import CheckpointError, RequestError, UnsupportedError
from triton_backend.segments import ControlStrings, Segment, SegmentKind
from triton_backend.token_bytes import decoder_of, token_bytes

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, which some control tokens swallow beside them (`str.strip` takes more)."""
MAX_CONTROL_CHARACTERS = 256
NO_TRAITS = {"special": False, "single_word": False, "lstrip": False, "rstrip": False}


class Tokenizer:
    """Encodes prompts and gives the bytes of tokens; threads may share it."""

    def __init__(self, tokenizer_json: bytes, *, bos_token_id: int | None, add_bos: bool) -> None:
        """Load a tokenizer.json.

        `add_bos` says that a prompt of plain text begins with `bos_token_id`.

        Raises:
            CheckpointError: the bytes are no tokenizer.json, or contradict the begin token.
            UnsupportedError: it asks for something not implemented, named in the message.
        """
        definition, added = _definition(tokenizer_json)
        # A text that opens a prompt, one that follows a control token, and a part of a text may
        # each get another space in front (SentencePiece style); most tokenizers need one encoder.
        self._opening = _loaded(definition)
        self._following = _with_prefixes(definition, self._opening, frozenset({"always"}))
        self._inner = _with_prefixes(definition, self._opening, frozenset())
        self._control = {token["content"]: token for token in added if token["special"]}
        self._control_strings_by_id = {token["id"]: text for text, token in self._control.items()}
        control_ids = frozenset(self._control_strings_by_id)
        vocabulary = self._opening.get_vocab(with_added_tokens=True)
        self._never_of_text = control_ids - {_unknown_id(definition["model"], vocabulary)}
        self._finder = ControlStrings(self._control)
        self._bytes = token_bytes(
            vocabulary,
            decoder_of(definition["decoder"]),
            control=control_ids,
            added=frozenset(token["id"] for token in added),
        )
        if add_bos and (bos_token_id is None or not 0 <= bos_token_id < self.vocab_size):
            raise CheckpointError(
                f"the tokenizer adds a begin token, but bos_token_id is {bos_token_id}; "
                f"give one of 0..{self.vocab_size - 1} or turn add_bos off."
            )
        self._begin = [bos_token_id] if add_bos and bos_token_id is not None else []

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return len(self._bytes.pieces)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """`token_bytes` of every id of the vocabulary."""
        return self._bytes.pieces

    @property
    def control_strings(self) -> frozenset[str]:
        """How the control (special) tokens are spelled."""
        return frozenset(self._control)

    def control_string(self, token_id: int) -> str | None:
        """Give the spelling of a control token; None for every other id."""
        return self._control_strings_by_id.get(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Give the bytes of text that `token_id` stands for; none for control and unknown ids."""
        return self._bytes[token_id]

    def opening_bytes(self, token_id: int) -> bytes:
        """Give the bytes of `token_id` where it is the first token of a text."""
        return self._bytes.opening(token_id)

    def encode(self, text: str) -> list[int]:
        """Encode a prompt of plain text: the begin token where the model wants one, then the text.

        Raises:
            RequestError: the text is not valid Unicode.
        """
        return self._begin + self.encode_segments([Segment(SegmentKind.TEXT, text)])

    def encode_with_control(self, text: str) -> list[int]:
        """Encode a prompt whose control strings count, with the begin token exactly once.

        Raises:
            RequestError: the text is not valid Unicode.
        """
        ids = self.encode_segments(self._finder.split(text))
        return ids if ids[:1] == self._begin else self._begin + ids

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]:
        """Encode typed segments as they are: no begin token but the one they spell.

        Neighbouring texts are encoded as one, so that cutting a text in two changes nothing.

        Raises:
            RequestError: a text is not valid Unicode, or a control segment is not a control token.
        """
        ids: list[int] = []
        joined = self._joined(segments)
        for place, segment in enumerate(joined):
            if segment.kind is SegmentKind.CONTROL:
                ids.append(self._control[segment.text]["id"])
                continue
            text = segment.text
            if place and self._control[joined[place - 1].text]["rstrip"]:
                text = text.lstrip(WHITE_SPACE)
            if place + 1 < len(joined) and self._control[joined[place + 1].text]["lstrip"]:
                text = text.rstrip(WHITE_SPACE)
            ids += self._encode_text(text, self._following if place else self._opening)
        return ids

    def _joined(self, segments: Iterable[Segment]) -> list[Segment]:
        """Join neighbouring texts and drop empty ones, so that texts and control tokens alternate."""
        given = list(segments)
        for place, segment in enumerate(given):
            if segment.kind is SegmentKind.CONTROL and segment.text not in self._control:
                raise RequestError(
                    f"segment {place} of the prompt is not a control token of this model; "
                    "send it as text, or one of the special tokens of its tokenizer."
                )
        joined: list[Segment] = []
        filled = (segment for segment in given if segment.text)
        for kind, run in groupby(filled, key=lambda segment: segment.kind):
            if kind is SegmentKind.TEXT:
                joined.append(Segment(kind, "".join(segment.text for segment in run)))
            else:
                joined += run
        return joined

    def _encode_text(self, text: str, encoder: tokenizers.Tokenizer) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            place = error.start
            # The cause is left out of the chain: it carries the whole text.
            raise RequestError(
                f"the prompt has half of a surrogate pair at character {place}; send valid Unicode."
            ) from None
        # A batch of one: `encode` would keep every other thread of the process waiting, 2.4 s for 650,000 characters.
        (encoding,) = encoder.encode_batch([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._never_of_text.isdisjoint(ids):
            return ids
        return self._spelled_out(text, encoding)

    def _spelled_out(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        """Encode by single characters what the model itself made a control token of.

        A vocabulary that holds "</s>" as an ordinary entry lets merges, or the best path, reach it.
        """
        ids: list[int] = []
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id not in self._never_of_text:
                ids.append(token_id)
                continue
            for character in text[start:end]:
                ids += self._inner.encode(character, add_special_tokens=False).ids
        return ids


def check_tokenizer(tokenizer_json: bytes) -> None:
    """Refuse a tokenizer.json that `Tokenizer` can't serve.

    Raises:
        CheckpointError: the bytes are no tokenizer.json.
        UnsupportedError: it asks for something not implemented, named in the message.
    """
    definition, _ = _definition(tokenizer_json)
    _loaded(definition)


def _definition(tokenizer_json: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the JSON; give it and its added tokens, whose fields are all there."""
    try:
        definition = json.loads(tokenizer_json)
        model = definition["model"]
        kind = model.get("type")
        added = [
            {**NO_TRAITS, "id": token["id"], "content": token["content"], **token}
            for token in definition.get("added_tokens") or []
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"tokenizer.json is broken ({type(error).__name__}); give the file that the model came with."
        ) from error
    decoder_of(definition.setdefault("decoder", None))
    if model.get("dropout"):
        raise UnsupportedError(f"the tokenizer's {kind} dropout is random; set it to null.")
    for token in added:
        if token["special"]:
            _check_control(token)
    # Both are settings of training that files carry by accident: a prompt is never cut or filled up.
    definition |= {"truncation": None, "padding": None}
    return definition, added


def _check_control(token: Mapping[str, Any]) -> None:
    content = token["content"]
    if token["single_word"]:
        raise UnsupportedError(
            f"special token {content!r} has single_word, which is not supported; set it to false."
        )
    if len(content) > MAX_CONTROL_CHARACTERS:
        raise UnsupportedError(
            f"special token {content[:20]!r}... has {len(content)} characters; "
            f"at most {MAX_CONTROL_CHARACTERS} are supported."
        )


def _loaded(definition: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        encoder = tokenizers.Tokenizer.from_str(json.dumps(definition))
    except Exception as error:  # the library has no narrower class
        reason = " ".join(str(error).split())
        raise CheckpointError(f"tokenizer.json can't be loaded: {reason}.") from error
    for token in definition.get("added_tokens") or []:
        found = encoder.token_to_id(token["content"])
        if found != token["id"]:
            # The library counts on from the vocabulary's end and pays no heed to the ids of the file.
            raise CheckpointError(
                f"tokenizer.json gives {token['content']!r} the id {token['id']}, but it loads as "
                f"{found}: the ids of added tokens must follow the vocabulary without a gap."
            )
    encoder.encode_special_tokens = True
    return encoder


def _with_prefixes(
    definition: Mapping[str, Any], whole: tokenizers.Tokenizer, kept: frozenset[str]
) -> tokenizers.Tokenizer:
    """Give an encoder that puts spaces in front of texts by the `kept` schemes only."""
    parts = {name: definition.get(name) for name in ("normalizer", "pre_tokenizer")}
    changed = {name: _without_prefix(part, kept) for name, part in parts.items()}
    return whole if changed == parts else _loaded({**definition, **changed})


def _without_prefix(part: Any, kept: frozenset[str]) -> Any:
    """Take from a normalizer or pre-tokenizer every way of putting a space in front but the `kept`."""
    if not isinstance(part, dict):
        return part
    for inside in ("normalizers", "pretokenizers"):
        if inside in part:
            return {**part, inside: [_without_prefix(each, kept) for each in part[inside]]}
    match part.get("type"):
        case "Metaspace" if part.get("prepend_scheme", "always") not in kept:
            return {**part, "prepend_scheme": "never", "add_prefix_space": False}
        case "ByteLevel" if part.get("add_prefix_space") and "always" not in kept:
            return {**part, "add_prefix_space": False}
        case "Prepend" if "always" not in kept:
            return {"type": "Sequence", "normalizers": []}
    return part


def _unknown_id(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """Give the id that stands for what the vocabulary can't spell, if there is one."""
    by_name = vocabulary.get(str(model.get("unk_token")))
    unknown: int | None = model.get("unk_id", by_name)
    return unknown
