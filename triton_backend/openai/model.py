"""A model as the shim knows it: its name, its tokenizer, its chat template and its limits."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from builder.artifact import manifest as manifests
from builder.artifact.store import hash_file, read_manifest
from builder.errors import ArtifactError
from triton_backend.chat_template import ChatTemplate
from triton_backend.openai.settings import ServedModel
from triton_backend.text_files import CHAT_TEMPLATE, TOKENIZER, compile_template, read_tokenizer
from triton_backend.tokenizer import Tokenizer

FINGERPRINT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Model:
    """What rendering chats and describing answers takes; no engine and no weights."""

    name: str
    fingerprint: str
    """Names the artifact: models with one fingerprint give the same answers."""
    max_seq_len: int
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    has_developer_role: bool
    """Whether the template tells the developer's messages from the system's."""


def open_model(served: ServedModel, clock: Callable[[], float]) -> Model:
    """Read what an artifact says about text.

    Raises:
        ArtifactError: it is no artifact, or its tokenizer was altered.
        CheckpointError: its tokenizer or chat template can't be used.
    """
    root = served.artifact
    manifest = read_manifest(root)
    record = manifest.tokenizer
    names = [TOKENIZER, CHAT_TEMPLATE] if record.has_chat_template else [TOKENIZER]
    for name in names:
        path = root / name
        if not path.is_file() or hash_file(path) != manifest.files.get(name):
            raise ArtifactError(f"{path} is missing or was altered; compile the model again.")
    tokenizer = read_tokenizer(root, record)
    source, template = "", None
    if record.has_chat_template:
        source = (root / CHAT_TEMPLATE).read_text("utf-8")
        template = compile_template(
            source, record, tokenizer, clock=lambda: datetime.fromtimestamp(clock())
        )
    return Model(
        name=served.name,
        fingerprint=f"fp_{hash_file(root / manifests.FILE_NAME).sha256[:FINGERPRINT_DIGITS]}",
        max_seq_len=manifest.limits.max_seq_len,
        tokenizer=tokenizer,
        chat_template=template,
        has_developer_role="developer" in source,
    )
