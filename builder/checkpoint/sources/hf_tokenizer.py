"""The tokenizer files of a Hugging Face folder.

Read: tokenizer.json (required), tokenizer_config.json, special_tokens_map.json, generation_config.json,
chat_template.jinja and chat_template.json.
"""

import os
from pathlib import Path
from typing import Any

from builder.checkpoint.end_tokens import find_end_tokens, token_text
from builder.checkpoint.files import read_bytes, read_json, read_text
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.checkpoint.vocabulary import Vocabulary, read_vocabulary, without_cutting
from builder.errors import CheckpointError

TEMPLATE = "chat_template"
SLOW_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")
OPTIONAL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def read_hf_tokenizer(folder: Path, config: dict[str, Any]) -> tuple[TokenizerFiles, list[Path]]:
    """Read the tokenizer files of `folder`, and say which files there were.

    Raises:
        CheckpointError: tokenizer.json is absent, or a file is broken or contradicts another.
        UnsupportedError: the tokenizer does something else to a prompt than adding tokens around it.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise _no_tokenizer(folder)
    raw = read_bytes(path)
    vocabulary = read_vocabulary(raw, str(path))
    settings = _optional(folder / "tokenizer_config.json")
    generation = _optional(folder / "generation_config.json")
    named = _named_tokens(settings, _optional(folder / "special_tokens_map.json"))
    _check_added_tokens(settings.get("added_tokens_decoder"), vocabulary)
    vocab_size = config.get("vocab_size")
    limit = vocab_size if type(vocab_size) is int else vocabulary.num_tokens
    ends = [
        ("config.json eos_token_id", config.get("eos_token_id")),
        ("generation_config.json eos_token_id", generation.get("eos_token_id")),
        ("tokenizer_config.json eos_token", named.get("eos_token")),
    ]
    # As in transformers 5, add_bos_token of tokenizer_config.json does not count beside a tokenizer.json.
    prefix, suffix = vocabulary.added_around_text()
    files = TokenizerFiles(
        tokenizer_json=without_cutting(raw, vocabulary),
        num_tokens=vocabulary.num_tokens,
        end_tokens=find_end_tokens(vocabulary, ends, limit),
        named_tokens=named,
        bos_token_id=vocabulary.ids.get(named.get("bos_token", "")),
        prefix_ids=prefix,
        suffix_ids=suffix,
        chat_template=_chat_template(folder, settings),
        generation_config=generation,
    )
    return files, [path, *(folder / name for name in OPTIONAL if (folder / name).is_file())]


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if _is_there(path) else {}


def _is_there(path: Path) -> bool:
    """Tell whether a file is there; what is there and is no file, such as a broken link, is not passed over.

    Raises:
        CheckpointError: it is there and is no file.
    """
    if os.path.lexists(path) and not path.is_file():
        raise CheckpointError(f"{path} is not a file, or a link to nothing; mend or remove it")
    return path.is_file()


def _named_tokens(settings: dict[str, Any], older: dict[str, Any]) -> dict[str, str]:
    """Give the tokens that have a name; tokenizer_config.json wins over the older file."""
    named: dict[str, str] = {}
    for name in NAMED_TOKENS:
        file = "tokenizer_config.json" if name in settings else "special_tokens_map.json"
        text = token_text(f"{file} {name}", settings.get(name, older.get(name)))
        if text is not None:
            named[name] = text
    return named


def _check_added_tokens(added: Any, vocabulary: Vocabulary) -> None:
    """Check that tokenizer.json has what tokenizer_config.json says was added; transformers would add it."""
    for token_id, token in (added or {}).items():
        who = f"tokenizer_config.json added_tokens_decoder {token_id}"
        text = token_text(who, token)
        if text is None or str(vocabulary.ids.get(text)) != token_id:
            raise CheckpointError(f"{who} is {text!r}, which tokenizer.json does not have there")


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Find the chat template in its three possible places."""
    if _is_there(folder / "chat_template.jinja"):
        return read_text(folder / "chat_template.jinja")
    template = settings.get(TEMPLATE)
    if template is not None:
        return _default_template(template, "tokenizer_config.json")
    return _default_template(
        _optional(folder / "chat_template.json").get(TEMPLATE), "chat_template.json"
    )


def _default_template(template: Any, file: str) -> str | None:
    """Choose among named templates, which come as a list of objects or as one object."""
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict)]
        template = {entry.get("name"): entry.get("template") for entry in named}
    if isinstance(template, dict):
        if "default" not in template:
            names = ", ".join(sorted(map(str, template)))
            raise CheckpointError(f"{file} has chat templates ({names}) but none named default")
        template = template["default"]
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{file} {TEMPLATE} must be text, not {type(template).__name__}")
    return template


def _no_tokenizer(folder: Path) -> CheckpointError:
    slow = [name for name in SLOW_FILES if _is_there(folder / name)]
    if not slow:
        return CheckpointError(
            f"{folder} has no tokenizer.json; copy it from the model's publisher"
        )
    return CheckpointError(
        f"{folder} has no tokenizer.json, only {', '.join(slow)}. Convert once with: "
        "python -c \"from transformers import AutoTokenizer as T; T.from_pretrained('FOLDER')"
        ".save_pretrained('FOLDER')\""
    )
