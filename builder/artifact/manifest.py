"""The manifest: what an artifact is, what it was made from, and what was realized in it.

It is written last and read first: no engine library sees a byte before it has been checked.
"""

import hashlib
from dataclasses import asdict, dataclass, replace

import msgspec

from builder.artifact.config import KVGeometry, Limits, ModelConfig
from builder.errors import ArtifactError

SCHEMA = 1
FILE_NAME = "artifact.json"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of the artifact or of its source."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights came from; paths are relative to the model."""

    kind: str
    """`hf`, `gguf` or `hub`."""
    name: str
    """Folder or file name, or `org/name`; never an absolute path."""
    revision: str | None
    """Commit of a hub model."""
    files: dict[str, FileRecord]


@dataclass(frozen=True, slots=True)
class Binding:
    """A named input or output of an engine."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """Fixed sizes as numbers, free ones as the letters of the step contract."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """One compiled engine and the precision it really has."""

    target: str
    rank: int
    path: str
    weights: str | None
    """File under `weights/` that the engine maps, or None when the engine embeds its weights."""
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    requested: str
    """Precision asked for, such as `float32` or `int8`."""
    realized: dict[str, str]
    """Precision of each layer in the engine that was built, by weight name."""
    compute: str
    """One sentence on the arithmetic that the precision stands for."""


@dataclass(frozen=True, slots=True)
class EndToken:
    """An end-of-sequence id and the files that name it."""

    id: int
    text: str
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenizerRecord:
    """What the serving side needs to know about the tokenizer beside its files."""

    vocab_size: int
    bos_token_id: int | None
    prefix_ids: tuple[int, ...]
    """Ids that a plain completion begins with; a chat template writes its own."""
    suffix_ids: tuple[int, ...]
    """Ids that a plain completion prompt ends with; empty for nearly all models."""
    named_tokens: dict[str, str]
    """Text of tokens that chat templates refer to by name, such as `bos_token`."""
    end_tokens: tuple[EndToken, ...]
    has_chat_template: bool

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """Union of all end-of-sequence ids, ascending."""
        return tuple(sorted(token.id for token in self.end_tokens))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole of `artifact.json`."""

    schema: int
    version: str
    """Forerun's version."""
    source: Source
    model: ModelConfig
    limits: Limits
    kv: KVGeometry
    engines: tuple[EngineRecord, ...]
    tokenizer: TokenizerRecord
    tools: dict[str, str]
    """Versions of the libraries that wrote the engines."""
    files: dict[str, FileRecord]
    """Every file of the artifact but this one, by path relative to its folder."""
    digest: str = ""
    """sha256 of this manifest as it is encoded with an empty digest: names the artifact, and finds damage."""


def seal(manifest: Manifest) -> Manifest:
    """Fill in the digest of a manifest that is complete."""
    bare = replace(manifest, digest="")
    return replace(bare, digest=hashlib.sha256(encode(bare)).hexdigest())


def encode(manifest: Manifest) -> bytes:
    """Give the manifest as JSON; equal manifests give equal bytes."""
    return (
        msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=2) + b"\n"
    )


def decode(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        ArtifactError: not JSON, of another schema, with a wrong or missing field, or altered.
    """
    try:
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("schema")
        if schema is None or bytes(schema) != str(SCHEMA).encode():
            found = "none" if schema is None else bytes(schema)[:20].decode("utf-8", "replace")
            raise ArtifactError(
                f"{FILE_NAME} has schema {found}, this version of Forerun reads schema {SCHEMA}; "
                "compile the model again with this version"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(
            f"{FILE_NAME} can't be read: {error}; compile the model again"
        ) from error
    if data != encode(seal(manifest)):
        raise ArtifactError(
            f"{FILE_NAME} was altered: it does not have the digest that it names; compile the model again"
        )
    _check_meaning(manifest)
    return manifest


def _check_meaning(manifest: Manifest) -> None:
    """Refuse what no build writes and nothing could run.

    Raises:
        ArtifactError: names the field.
    """
    limits, kv = manifest.limits, manifest.kv
    sizes = {
        "limits": min(asdict(limits).values()),
        "kv.block_size": kv.block_size,
        "kv.groups": len(kv.groups),
        "engines": len(manifest.engines),
        "limits.num_blocks": limits.num_blocks - 1,
        "model.vocab_size": manifest.model.vocab_size,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ArtifactError(f"{FILE_NAME}: {name} can't be right; compile the model again")
    for engine in manifest.engines:
        for path in (engine.path, engine.weights):
            if path is not None and path not in manifest.files:
                raise ArtifactError(
                    f"{FILE_NAME} names {path!r}, which is no file of it; compile the model again"
                )
