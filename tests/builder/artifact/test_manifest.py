"""Manifests: read strictly, and refused when they were altered or have no sense."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from builder.artifact import manifest as manifests
from builder.artifact import store
from builder.artifact.config import Limits
from builder.artifact.manifest import FileRecord, Manifest
from builder.artifact.store import Artifact, open_artifact
from builder.errors import ArtifactError


def reseal(root: Path, manifest: Manifest) -> None:
    """Write another manifest, with the digest that it must have."""
    (root / manifests.FILE_NAME).write_bytes(manifests.encode(manifests.seal(manifest)))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 2}', b'"x"', b"\xff\xfe", b"{" * 5000]
)
def test_a_manifest_that_is_none_is_refused(copy: Path, content: bytes) -> None:
    (copy / manifests.FILE_NAME).write_bytes(content)
    with pytest.raises(ArtifactError, match=r"artifact\.json"):
        open_artifact(copy)


def test_a_manifest_of_another_schema_names_both(copy: Path) -> None:
    path = copy / manifests.FILE_NAME
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, "schema": 99}))
    with pytest.raises(ArtifactError, match=r"schema 99, this version of Forerun reads schema 3"):
        open_artifact(copy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"max_num_seqs": 32', '"max_num_seqs": 0'),
        ('"block_size": 16', '"block_size": 0'),
        ('"theta": 10000.0', '"theta": 1.0'),
        ('"target": "cpu"', '"target": "another"'),
        ('"digest": "', '"digest": "0'),
    ],
)
def test_a_manifest_edited_by_hand_is_refused(copy: Path, old: str, new: str) -> None:
    path = copy / manifests.FILE_NAME
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ArtifactError, match="altered"):
        open_artifact(copy)


def test_encoding_is_stable_and_decodes_to_the_same(built: Artifact) -> None:
    data = manifests.encode(built.manifest)
    assert manifests.decode(data) == built.manifest
    assert manifests.encode(manifests.decode(data)) == data


@pytest.mark.parametrize(
    "change",
    [
        {"engines": ()},
        {"limits": Limits(512, 0, 512, 32, 100)},
        {"limits": Limits(512, 32, 512, 32, 1)},
        {"files": {}},
    ],
)
def test_a_sealed_manifest_that_nothing_could_run_is_refused(
    copy: Path, change: dict[str, object]
) -> None:
    reseal(copy, dataclasses.replace(store.read_manifest(copy), **change))
    with pytest.raises(ArtifactError, match=r"artifact\.json"):
        open_artifact(copy)


HUGE = 2**62


SENSELESS = {
    "limits.num_blocks": lambda m: limited(m, num_blocks=HUGE),
    "limits.num_blocks ": lambda m: limited(m, num_blocks=2**28),
    "limits.max_seq_len": lambda m: limited(m, max_seq_len=m.model.max_positions + 1),
    "limits.max_num_seqs": lambda m: limited(m, max_num_seqs=m.limits.max_num_tokens + 1),
    "limits.max_num_tokens": lambda m: limited(m, max_num_tokens=HUGE),
    "limits.max_logit_rows": lambda m: limited(m, max_logit_rows=0),
    "model.hidden_size": lambda m: replaced(m, model=replaced(m.model, hidden_size=-1)),
    "kv.block_size": lambda m: replaced(m, kv=replaced(m.kv, block_size=0)),
    "kv.groups": lambda m: replaced(m, kv=replaced(m.kv, groups=())),
    "kv.groups ": lambda m: grouped(m, layers=(0, 0)),
    "dtype in kv.groups": lambda m: grouped(m, dtype="float128"),
    "key_scales in kv.groups": lambda m: grouped(m, dtype="fp8", value_scales=(1.0, 1.0)),
    "key_scales in kv.groups ": lambda m: grouped(m, key_scales=(1.0, 1.0)),
    "key_scales in kv.groups  ": lambda m: grouped(m, dtype="fp8", key_scales=(1.0, 0.0)),
    "value_scales in kv.groups": lambda m: grouped(
        m, dtype="int8-static", key_scales=(1.0, 1.0), value_scales=(1.0,)
    ),
    "a size in kv.groups": lambda m: grouped(m, head_dim=HUGE),
    "engines": lambda m: replaced(m, engines=()),
    "'weights/cpu.rank0.safetensors', which no engine uses,": lambda m: built_as(m, weights=None),
    "'engines/none' in engines": lambda m: built_as(m, path="engines/none"),
    "the ranks of 'cpu' in engines": lambda m: built_as(m, rank=1),
    "the ranks of 'cpu' in engines ": lambda m: built_as(m, rank=-1),
    "the ranks of 'cpu' in engines  ": lambda m: replaced(m, engines=m.engines * 2),
    "engines without bindings": lambda m: built_as(m, inputs=()),
    "engines without bindings ": lambda m: built_as(m, outputs=()),
    "emulated in engines": lambda m: built_as(m, emulated=("fp8",)),
    "'tokenizer/a\\x00b' in files": lambda m: filed(m, "tokenizer/a\0b", 1),
    "'tokenizer/a' in files": lambda m: filed(m, "tokenizer/a", -1),
    "tokenizer.vocab_size": lambda m: tokenized(m, vocab_size=m.model.vocab_size + 1),
    "an id in tokenizer": lambda m: tokenized(m, prefix_ids=(-1,)),
    "an id in tokenizer ": lambda m: tokenized(m, suffix_ids=(m.model.vocab_size,)),
}


"""What is wrong, and how it becomes so."""


replaced: Any = dataclasses.replace


def limited(manifest: Manifest, **limits: int) -> Any:
    return replaced(manifest, limits=replaced(manifest.limits, **limits))


def grouped(manifest: Manifest, **change: object) -> Any:
    (group,) = manifest.kv.groups
    return replaced(manifest, kv=replaced(manifest.kv, groups=(replaced(group, **change),)))


def built_as(manifest: Manifest, **change: object) -> Any:
    (engine,) = manifest.engines
    return replaced(manifest, engines=(replaced(engine, **change),))


def filed(manifest: Manifest, name: str, size: int) -> Any:
    return replaced(manifest, files={**manifest.files, name: FileRecord(size, "0")})


def tokenized(manifest: Manifest, **change: object) -> Any:
    return replaced(manifest, tokenizer=replaced(manifest.tokenizer, **change))


@pytest.mark.parametrize("named", SENSELESS)
def test_a_sealed_manifest_without_sense_is_refused_by_the_name_of_what_is_wrong(
    copy: Path, named: str
) -> None:
    reseal(copy, SENSELESS[named](store.read_manifest(copy)))
    message = f"artifact.json: {named.strip()} can't be right; compile the model again"
    with pytest.raises(ArtifactError, match=re.escape(message)):
        open_artifact(copy)


def test_a_field_that_no_manifest_has_is_refused(copy: Path) -> None:
    path = copy / manifests.FILE_NAME
    path.write_text(path.read_text().replace('"schema": 3', '"schema": 3, "surprise": 2', 1))
    with pytest.raises(ArtifactError, match="altered"):
        open_artifact(copy)
