"""What the native engine is opened with can be wrong: one line says what, and nothing runs."""

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest

from builder.artifact.config import KVGeometry, KVGroup
from builder.artifact.store import Artifact
from builder.errors import ArtifactError, UserError
from builder.targets import import_half, open_executor
from builder.targets.cpu.plan import VERSION
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.precisions import PRECISIONS
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner


@pytest.mark.parametrize("threads", [0, -1, 10_000])
def test_thread_counts_out_of_range_are_refused(plain: Artifact, threads: int) -> None:
    with pytest.raises(UserError, match=f"{threads} threads"):
        open_executor(plain, threads=threads)


@pytest.mark.parametrize(
    "group",
    [
        KVGroup((0, 1), 2, 16, "float32"),
        KVGroup((0, 1, 2), 2, 16, "bfloat16"),
        KVGroup((0, 1), 1, 16, "bfloat16"),
        KVGroup((0, 1), 2, 16, "bfloat16", window=8),
    ],
)
def test_a_manifest_that_does_not_fit_its_plan_is_refused(plain: Artifact, group: KVGroup) -> None:
    manifest = dataclasses.replace(plain.manifest, kv=KVGeometry(16, (group,)))
    with pytest.raises(ArtifactError, match="not as its manifest says"):
        open_executor(Artifact(plain.root, manifest))


def test_keys_and_values_in_two_groups_are_refused(plain: Artifact) -> None:
    groups = (KVGroup((0,), 2, 16, "bfloat16"), KVGroup((1,), 2, 16, "bfloat16"))
    manifest = dataclasses.replace(plain.manifest, kv=KVGeometry(16, groups))
    with pytest.raises(ArtifactError, match="not as its manifest says"):
        open_executor(Artifact(plain.root, manifest))


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_an_artifact_without_the_target_is_refused_by_what_it_has(
    plain: Artifact, target: str
) -> None:
    (record,) = plain.manifest.engines
    other = "portable" if target == "cpu" else "cpu"
    engines = (dataclasses.replace(record, target=other),)
    artifact = Artifact(plain.root, dataclasses.replace(plain.manifest, engines=engines))
    with pytest.raises(ArtifactError, match=f"no engine for {target}, only for {other}; compile"):
        import_half(target, "execute").open_executor(artifact)


def test_an_engine_of_two_ranks_is_refused(plain: Artifact) -> None:
    (record,) = plain.manifest.engines
    engines = (record, dataclasses.replace(record, rank=1))
    artifact = Artifact(plain.root, dataclasses.replace(plain.manifest, engines=engines))
    with pytest.raises(ArtifactError, match="2 ranks for cpu, this version runs one"):
        open_executor(artifact)


def test_an_engine_whose_weights_nobody_names_is_refused(plain: Artifact) -> None:
    (record,) = plain.manifest.engines
    engines = (dataclasses.replace(record, weights=None),)
    artifact = Artifact(plain.root, dataclasses.replace(plain.manifest, engines=engines))
    with pytest.raises(ArtifactError, match="weights are not named"):
        open_executor(artifact)


@pytest.mark.parametrize("size", [0, 64])
def test_weights_of_another_size_than_the_plan_s_are_refused_before_they_are_mapped(
    plain: Artifact, tmp_path: Path, size: int
) -> None:
    artifact = spoiled(plain, tmp_path, plan_of(plain))
    artifact.path(str(artifact.manifest.engines[0].weights)).write_bytes(bytes(size))
    with pytest.raises(ArtifactError, match=f"weights have {size} bytes, its plan speaks of"):
        open_executor(artifact)


def test_a_plan_of_no_weights_is_refused(plain: Artifact, tmp_path: Path) -> None:
    plan = bytearray(plan_of(plain))
    struct.pack_into("<q", plan, 48, 0)
    with pytest.raises(ArtifactError, match="cut short or altered"):
        open_executor(spoiled(plain, tmp_path, bytes(plan)))


def spoiled(artifact: Artifact, folder: Path, plan: bytes) -> Artifact:
    (record,) = artifact.manifest.engines
    for name in (record.path, str(record.weights)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(artifact.path(name).read_bytes())
    (folder / record.path).write_bytes(plan)
    return Artifact(folder, artifact.manifest)


def plan_of(artifact: Artifact) -> bytes:
    return artifact.path(artifact.manifest.engines[0].path).read_bytes()


@pytest.mark.parametrize("cut", [0, 7, 63, 64, 200, -1])
def test_a_plan_that_is_cut_short_is_refused(plain: Artifact, tmp_path: Path, cut: int) -> None:
    with pytest.raises(ArtifactError, match="compile the model again"):
        open_executor(spoiled(plain, tmp_path, plan_of(plain)[:cut]))


def test_a_plan_of_another_version_names_both(plain: Artifact, tmp_path: Path) -> None:
    plan = bytearray(plan_of(plain))
    struct.pack_into("<I", plan, 8, 9)
    with pytest.raises(ArtifactError, match=f"version 9, this version of Forerun reads {VERSION}"):
        open_executor(spoiled(plain, tmp_path, bytes(plan)))


@pytest.mark.parametrize("precision", ["int8", "int8-channel", "int4", "uint4-g128", "bfloat16"])
def test_no_flipped_number_of_a_plan_reaches_memory_that_is_not_there(
    precision: str, tmp_path: Path
) -> None:
    """Each 32-bit number of a plan in turn becomes absurd: the engine refuses it, or runs within its buffers."""
    model = tiny_llama(tmp_path / "model")
    built = compile_model(model, tmp_path / "built", max_num_seqs=256, **PRECISIONS[precision])
    whole, tokens = plan_of(built), draw(20)
    random = np.random.default_rng(0)
    refused = 0
    for place in random.choice(np.arange(8, len(whole), 4), 250, replace=False):
        plan = bytearray(whole)
        struct.pack_into("<i", plan, place, int(random.choice([-7, 1 << 20, 0x7FFFFFFF, 3])))
        try:
            executor = open_executor(spoiled(built, tmp_path, bytes(plan)))
        except ArtifactError:
            refused += 1
            continue
        PagedRunner(executor).whole(tokens)
        executor.close()
    assert refused > 50
