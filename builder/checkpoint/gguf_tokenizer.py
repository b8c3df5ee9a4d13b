"""Builds the tokenizer files of a model from GGUF metadata, so that no other file is needed.

The ids are those of llama.cpp. Special tokens in a text: the tokenizers library finds them unless
`encode_special_tokens` is set, which is llama.cpp's parse_special off; user-defined tokens are found in
both cases. Where two special tokens overlap in a text, the leftmost wins; in llama.cpp, the longest.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from builder.checkpoint.end_tokens import find_end_tokens
from builder.checkpoint.gguf_bpe import build_bpe, find_pre_tokenizer
from builder.checkpoint.gguf_spm import build_spm
from builder.checkpoint.gguf_vocabulary import GgufVocabulary, read_gguf_vocabulary
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.checkpoint.vocabulary import read_vocabulary
from builder.errors import CheckpointError, UnsupportedError, unknown_name

PREFIX = "tokenizer.ggml."
NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
END_TOKENS = ("eos_token_id", "eot_token_id", "eom_token_id")
READ_KEYS = {
    "model",
    "pre",
    "tokens",
    "token_type",
    "scores",
    "merges",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
}
FILL_IN_KEYS = {
    f"{part}_token_id"
    for part in (
        "prefix",
        "suffix",
        "middle",
        "fim_pre",
        "fim_suf",
        "fim_mid",
        "fim_pad",
        "fim_rep",
        "fim_sep",
    )
}  # tokens of code completion prompts, which the caller writes
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_sep_token": (False,),
    "remove_extra_whitespaces": (False,),
    "token_type_count": (1,),
}


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """One value of `tokenizer.ggml.model`."""

    build: Callable[[GgufVocabulary, Mapping[str, Any]], dict[str, Any]]
    """Give normalizer, pre_tokenizer, model, decoder and added_tokens of tokenizer.json."""
    adds_bos: Callable[[Mapping[str, Any]], bool]
    """Say whether prompts begin with the begin token when the metadata doesn't."""
    defaults: Mapping[str, int]
    """Token ids that hold when the metadata has none."""


KINDS: Mapping[str, TokenizerKind] = {
    "gpt2": TokenizerKind(build_bpe, lambda metadata: find_pre_tokenizer(metadata).add_bos, {}),
    "llama": TokenizerKind(
        build_spm, lambda _: True, {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    ),
}


def read_gguf_tokenizer(metadata: Mapping[str, Any]) -> TokenizerFiles:
    """Build the tokenizer files from the metadata of a GGUF file.

    Raises:
        CheckpointError: a key is missing, of the wrong kind, or contradicts another.
        UnsupportedError: the tokenizer needs something that is not implemented.
    """
    name = metadata.get(PREFIX + "model")
    if not isinstance(name, str) or name not in KINDS:
        raise UnsupportedError(unknown_name("tokenizer.ggml.model", str(name), KINDS))
    kind = KINDS[name]
    _refuse_unread(metadata)
    tokens = read_gguf_vocabulary(metadata)
    parts = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    content = parts | kind.build(tokens, metadata)
    tokenizer_json = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    vocabulary = read_vocabulary(tokenizer_json, "the tokenizer of the GGUF file")
    if any(vocabulary.ids.get(text) != token_id for token_id, text in enumerate(tokens.texts)):
        raise CheckpointError(
            "the tokens of the GGUF file don't make a tokenizer with the same ids"
        )
    ids = _token_ids(metadata, kind, len(tokens.texts))
    ends = [(PREFIX + key, ids.get(key)) for key in END_TOKENS]
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        num_tokens=len(tokens.texts),
        end_tokens=find_end_tokens(vocabulary, ends, len(tokens.texts)),
        named_tokens={
            name: tokens.texts[ids[key]] for name, key in NAMED_TOKENS.items() if key in ids
        },
        bos_token_id=ids.get("bos_token_id"),
        prefix_ids=_added("bos", kind.adds_bos(metadata), metadata, ids),
        suffix_ids=_added("eos", False, metadata, ids),
        chat_template=_chat_template(metadata),
    )


def _refuse_unread(metadata: Mapping[str, Any]) -> None:
    """Refuse tokenizer keys that nobody reads."""
    known = READ_KEYS | FILL_IN_KEYS | {*NAMED_TOKENS.values(), *END_TOKENS}
    for key, value in metadata.items():
        name = key.removeprefix(PREFIX)
        if name == key or name in known:
            continue
        if name not in NEUTRAL:
            raise UnsupportedError(f"the GGUF file has {key}, which is not implemented")
        if value not in NEUTRAL[name]:
            raise UnsupportedError(f"{key} is {value!r}; only {NEUTRAL[name][0]!r} is supported")


def _token_ids(metadata: Mapping[str, Any], kind: TokenizerKind, num_tokens: int) -> dict[str, int]:
    """Give the ids of tokens that have a role, by metadata key."""
    ids: dict[str, int] = dict(kind.defaults)
    for key in {*NAMED_TOKENS.values(), *END_TOKENS}:
        token_id = metadata.get(PREFIX + key)
        if token_id is not None:
            ids[key] = token_id
    for key, token_id in ids.items():
        if type(token_id) is not int or not 0 <= token_id < num_tokens:
            raise CheckpointError(
                f"{PREFIX}{key} is {token_id!r}, outside the vocabulary of {num_tokens} tokens"
            )
    return ids


def _added(
    role: str, by_default: bool, metadata: Mapping[str, Any], ids: Mapping[str, int]
) -> tuple[int, ...]:
    """Give the begin or end token if completions get it."""
    is_added = metadata.get(f"{PREFIX}add_{role}_token", by_default)
    if type(is_added) is not bool:
        raise CheckpointError(f"{PREFIX}add_{role}_token must be a bool")
    if not is_added:
        return ()
    if f"{role}_token_id" not in ids:
        raise CheckpointError(f"prompts get a {role} token, but {PREFIX}{role}_token_id is absent")
    return (ids[f"{role}_token_id"],)


def _chat_template(metadata: Mapping[str, Any]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise CheckpointError("tokenizer.chat_template must be text")
    return template
