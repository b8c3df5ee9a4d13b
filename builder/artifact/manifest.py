"""The manifest: what an artifact is, what it was made from, and what was realized in it.

It is written last and read first: no engine library sees a byte before it has been checked.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

import msgspec

from builder.artifact.config import (
    ELEMENT_BYTES,
    FIXED_SCALES,
    KVGeometry,
    KVGroup,
    Limits,
    ModelConfig,
)
from builder.errors import ArtifactError

SCHEMA = 3
FILE_NAME = "artifact.json"
MAX_SIZE = 2**31 - 1
"""Steps speak of tokens, blocks and slots in int32."""
ENGINE_FOLDERS = ("engines/", "weights/")
"""Folders that hold nothing but what an engine is made of."""


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
    stored: dict[str, str] = field(default_factory=dict)
    """How the files hold each weight that is no plain float, such as `Q4_1` or `int4`, by its name."""


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
    emulated: tuple[str, ...]
    """Precisions of `realized` that the engine emulates: their exact numbers, multiplied in float32."""
    fallbacks: dict[str, str]
    """Layers of another precision than was asked for, each with the one that was."""


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
    is_gated: bool = False
    """Whether it was compiled to be judged: then it runs nowhere before its gate is met."""
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
    checks = (_wrong_sizes, _wrong_kv, _wrong_engines, _wrong_files, _wrong_ids)
    wrong = next((name for check in checks for name in check(manifest)), None)
    if wrong is not None:
        raise ArtifactError(f"{FILE_NAME}: {wrong} can't be right; compile the model again")


def _wrong_sizes(manifest: Manifest) -> Iterator[str]:
    """Name sizes that are not positive, or that contradict others."""
    for part, noun in (("limits", manifest.limits), ("model", manifest.model)):
        for name, value in asdict(noun).items():
            if type(value) is int and not 0 < value <= MAX_SIZE:
                yield f"{part}.{name}"
    limits = manifest.limits
    if manifest.kv.block_size < 1:
        yield "kv.block_size"
    if not 1 < limits.num_blocks <= MAX_SIZE // manifest.kv.block_size:
        yield "limits.num_blocks"  # a slot is an int32
    if limits.max_seq_len > manifest.model.max_positions:
        yield "limits.max_seq_len"
    if limits.max_num_seqs > limits.max_num_tokens:
        yield "limits.max_num_seqs"
    if limits.max_logit_rows > limits.max_num_tokens:
        yield "limits.max_logit_rows"


def _wrong_kv(manifest: Manifest) -> Iterator[str]:
    """Name groups that don't share the layers of the model among them, or have no size."""
    groups, model = manifest.kv.groups, manifest.model
    if sorted(layer for group in groups for layer in group.layers) != list(range(model.num_layers)):
        yield "kv.groups"
    for group in groups:
        if group.dtype not in ELEMENT_BYTES:
            yield "dtype in kv.groups"
        if not (0 < group.num_kv_heads <= MAX_SIZE and 0 < group.head_dim <= MAX_SIZE):
            yield "a size in kv.groups"
        yield from _wrong_scales(group)


def _wrong_scales(group: KVGroup) -> Iterator[str]:
    """Name scales that are missing, too many, or no positive numbers."""
    count = len(group.layers) if group.dtype in FIXED_SCALES else 0
    for name in ("key_scales", "value_scales"):
        scales: tuple[float, ...] = getattr(group, name)
        if len(scales) != count or not all(scale > 0 and math.isfinite(scale) for scale in scales):
            yield f"{name} in kv.groups"


def _wrong_engines(manifest: Manifest) -> Iterator[str]:
    """Name engines without files or bindings, ranks that are missing or there twice, and files that no engine names."""
    owned = {path for engine in manifest.engines for path in (engine.path, engine.weights) if path}
    if not manifest.engines:
        yield "engines"
    yield from (f"{path!r} in engines" for path in sorted(owned - set(manifest.files)))
    for target in dict.fromkeys(engine.target for engine in manifest.engines):
        ranks = sorted(engine.rank for engine in manifest.engines if engine.target == target)
        if ranks != list(range(len(ranks))):
            yield f"the ranks of {target!r} in engines"
    for engine in manifest.engines:
        if not engine.inputs or not engine.outputs:
            yield "engines without bindings"
        if not set(engine.emulated) <= set(engine.realized.values()):
            yield "emulated in engines"
        if any(engine.realized.get(name) == asked for name, asked in engine.fallbacks.items()):
            yield "fallbacks in engines"
    for name in manifest.files:
        if name.startswith(ENGINE_FOLDERS) and name not in owned:
            yield f"{name!r}, which no engine uses,"


def _wrong_files(manifest: Manifest) -> Iterator[str]:
    """Name files that no system could hold, and sizes below zero."""
    for name, record in manifest.files.items():
        if not name or not name.isprintable() or record.size_bytes < 0:
            yield f"{name!r} in files"


def _wrong_ids(manifest: Manifest) -> Iterator[str]:
    """Name token ids that the model lacks."""
    tokenizer, vocab_size = manifest.tokenizer, manifest.model.vocab_size
    ids = (*tokenizer.prefix_ids, *tokenizer.suffix_ids, *tokenizer.end_token_ids)
    if not 0 < tokenizer.vocab_size <= vocab_size:
        yield "tokenizer.vocab_size"
    if not all(0 <= token_id < vocab_size for token_id in ids):
        yield "an id in tokenizer"
