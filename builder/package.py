"""What an artifact holds beside its engines: the tokenizer's files, and the record of the source."""

import json
from collections.abc import Callable
from pathlib import Path

from builder.artifact.manifest import EndToken, FileRecord, Source, TokenizerRecord
from builder.artifact.store import hash_file
from builder.checkpoint.tensors import FLOATS, Checkpoint
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import CheckpointError


def record_source(checkpoint: Checkpoint, advance: Callable[[int], None]) -> Source:
    """Hash every file that the checkpoint was read from, and note what its weights are where they are no plain floats.

    Raises:
        CheckpointError: a file changed since it was opened.
    """
    source, files = checkpoint.source, dict[str, FileRecord]()
    for file in source.files:
        try:
            record = hash_file(file.path, advance)
        except OSError as error:
            raise CheckpointError(f"can't read {file.path}: {error.strerror or error}") from error
        if record.size_bytes != file.num_bytes:
            raise CheckpointError(
                f"{file.path} changed while it was read; compile again when nothing writes to it"
            )
        files[file.name] = record
    narrow = {
        name: tensor.stored
        for name, tensor in checkpoint.tensors.items()
        if tensor.stored not in FLOATS
    }
    return Source(
        kind=source.kind, name=source.name, revision=source.commit, files=files, stored=narrow
    )


def write_tokenizer(files: TokenizerFiles, folder: Path) -> TokenizerRecord:
    """Write the tokenizer's files into `folder`, and give what the manifest says of them."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(files.tokenizer_json)
    if files.chat_template is not None:
        (folder / "chat_template.jinja").write_bytes(files.chat_template.encode())
    if files.generation_config:
        text = json.dumps(files.generation_config, indent=2, sort_keys=True)
        (folder / "generation_config.json").write_bytes(text.encode() + b"\n")
    return TokenizerRecord(
        vocab_size=files.num_tokens,
        bos_token_id=files.bos_token_id,
        prefix_ids=files.prefix_ids,
        suffix_ids=files.suffix_ids,
        named_tokens=files.named_tokens,
        end_tokens=tuple(
            EndToken(token.id, token.text or "", tuple(token.sources)) for token in files.end_tokens
        ),
        has_chat_template=files.chat_template is not None,
    )
