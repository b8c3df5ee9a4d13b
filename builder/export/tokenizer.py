"""The tokenizer files of a Hugging Face folder, from those of an artifact.

An artifact keeps apart what a tokenizer puts around a text, which its manifest names; here tokenizer.json does that itself again.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from builder.artifact.manifest import TokenizerRecord
from builder.artifact.store import Artifact
from builder.checkpoint.vocabulary import Vocabulary, read_vocabulary

TEMPLATE = "chat_template.jinja"
GENERATION = "generation_config.json"
FILES = ("tokenizer.json", "tokenizer_config.json", TEMPLATE, GENERATION)


def write_tokenizer(artifact: Artifact, folder: Path) -> None:
    """Write FILES, without a template where there is none."""
    record, own = artifact.manifest.tokenizer, artifact.path("tokenizer")
    raw = (own / "tokenizer.json").read_bytes()
    vocabulary = read_vocabulary(raw, str(own / "tokenizer.json"))
    (folder / "tokenizer.json").write_bytes(_with_added(raw, vocabulary, record))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": artifact.manifest.model.max_positions,
        **record.named_tokens,
    }
    write_json(folder / "tokenizer_config.json", settings)
    if record.has_chat_template:
        (folder / TEMPLATE).write_bytes((own / TEMPLATE).read_bytes())
    found = own / GENERATION
    settings = json.loads(found.read_bytes()) if found.is_file() else {}
    write_json(folder / GENERATION, settings | token_fields(record))


def token_fields(record: TokenizerRecord) -> dict[str, Any]:
    """Give the ids that configs name: the begin token, and all that end an answer."""
    ends = list(record.end_token_ids)
    fields: dict[str, Any] = {"eos_token_id": ends if len(ends) > 1 else ends[0]} if ends else {}
    if record.bos_token_id is not None:
        fields["bos_token_id"] = record.bos_token_id
    return fields


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as people read it."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _with_added(raw: bytes, vocabulary: Vocabulary, record: TokenizerRecord) -> bytes:
    """Give the tokenizer.json with the ids around a text that the manifest names."""
    prefix, suffix = record.prefix_ids, record.suffix_ids
    if vocabulary.added_around_text() == (prefix, suffix):
        return raw
    texts = {index: vocabulary.text(index) or "" for index in (*prefix, *suffix)}
    before, after = ([texts[index] for index in ids] for ids in (prefix, suffix))
    vocabulary.tokenizer.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, "$B:1", *(f"{text}:1" for text in after)],
        special_tokens=[(text, index) for index, text in texts.items()],
    )
    content: str = vocabulary.tokenizer.to_str()
    return content.encode("utf-8")
