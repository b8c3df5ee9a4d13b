"""Artifacts on disk: complete or absent, and refused when altered."""

import dataclasses
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from builder.artifact import manifest as manifests
from builder.artifact import store
from builder.artifact.manifest import FileRecord
from builder.artifact.staging import staged
from builder.artifact.store import Artifact, open_artifact
from builder.errors import ArtifactError, BuildError, UserError
from builder.targets import open_executor
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner


def test_a_complete_artifact_opens_with_the_manifest_it_was_written_with(built: Artifact) -> None:
    assert open_artifact(built.root).manifest == built.manifest


def test_the_manifest_names_every_file(built: Artifact) -> None:
    present = {p.relative_to(built.root).as_posix() for p in built.root.rglob("*") if p.is_file()}
    assert present == {*built.manifest.files, manifests.FILE_NAME}


def test_nobody_may_write_to_a_file_of_an_artifact_and_everybody_may_read_it(
    built: Artifact,
) -> None:
    """Engines map the weights: whoever cuts the file under one that runs would end its process."""
    for name in (*built.manifest.files, manifests.FILE_NAME):
        assert built.path(name).stat().st_mode & 0o777 == 0o444


def test_an_artifact_that_is_replaced_lives_on_where_it_is_mapped(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model")
    artifact = compile_model(model, tmp_path / "built", max_num_seqs=8)
    executor = open_executor(artifact, threads=1)
    runner = PagedRunner(executor)
    before = runner.whole([1, 2, 3])
    compile_model(model, tmp_path / "built", quant="int8", max_num_seqs=8, replace_existing=True)
    np.testing.assert_array_equal(runner.whole([1, 2, 3]), before)
    executor.close()
    shutil.rmtree(tmp_path / "built")


def test_verification_reports_every_byte(built: Artifact) -> None:
    seen: list[int] = []
    open_artifact(built.root, seen.append)
    assert sum(seen) == sum(record.size_bytes for record in built.manifest.files.values())


def test_one_flipped_byte_in_any_file_is_named(built: Artifact, tmp_path: Path) -> None:
    for name in built.manifest.files:
        folder = tmp_path / name.replace("/", "-")
        copy = shutil.copytree(built.root, folder, copy_function=shutil.copyfile)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / name).write_bytes(data)
        with pytest.raises(ArtifactError, match=name):
            open_artifact(copy)


def test_a_truncated_file_is_named_with_both_sizes(copy: Path) -> None:
    path = copy / "weights" / "cpu.rank0.safetensors"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(ArtifactError, match=f"{size - 1} bytes, its manifest says {size}"):
        open_artifact(copy)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match=r"lacks tokenizer/tokenizer\.json"):
        open_artifact(copy)


def test_a_file_nobody_named_is_refused_but_reports_may_grow(copy: Path) -> None:
    (copy / "reports").mkdir()
    (copy / "reports" / "gate.json").write_text("{}")
    open_artifact(copy)
    (copy / "extra.py").write_text("")
    with pytest.raises(ArtifactError, match=r"extra\.py"):
        open_artifact(copy)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "engines/../../outside"])
def test_a_manifest_may_not_name_files_outside(copy: Path, name: str) -> None:
    manifest = store.read_manifest(copy)
    files = {**manifest.files, name: FileRecord(size_bytes=1, sha256="0")}
    resealed = manifests.seal(dataclasses.replace(manifest, files=files))
    (copy / manifests.FILE_NAME).write_bytes(manifests.encode(resealed))
    with pytest.raises(ArtifactError, match="outside"):
        open_artifact(copy)


def test_no_folder_and_no_manifest_say_how_to_make_one(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ArtifactError, match="builder compile"):
            open_artifact(folder)


def write_half(destination: Path, failure: Exception) -> None:
    with staged(destination) as folder:
        (folder / "half").write_text("x")
        raise failure


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_half(tmp_path / "a", KeyError())
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_the_middle_of_the_removal_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = shutil.rmtree, []

    def interrupted(folder: Path, **options: bool) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "a", ValueError())
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_of_a_watcher_is_no_trouble_with_the_disk(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError):
        write_half(tmp_path / "a", BrokenPipeError())
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_leaves_no_room_for_the_folder_beside_it_is_refused(tmp_path: Path) -> None:
    longest = 255 - len("..partial-") - 16
    with staged(tmp_path / ("ü" * (longest // 2))):
        pass
    for name in ("x" * (longest + 1), "ü" * (longest // 2 + 1), "x" * 300):
        with pytest.raises(UserError, match="the name of -o is too long"):
            store.check_free(tmp_path / name, replace_existing=False)
    store.check_free(tmp_path / ("x" * longest), replace_existing=False)


def test_the_folder_has_the_permissions_that_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with staged(tmp_path / "a") as folder:
            assert folder.stat().st_mode & 0o777 == 0o750
    finally:
        os.umask(before)


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="No space left"):
        write_half(tmp_path / "a", OSError(errno.ENOSPC, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_a_taken_destination_is_refused_unless_replacing_an_artifact(
    built: Artifact, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="--force"):
        store.check_free(built.root, replace_existing=False)
    store.check_free(built.root, replace_existing=True)
    (tmp_path / "mine").mkdir()
    for force in (False, True):
        with pytest.raises(UserError, match="not an artifact"):
            store.check_free(tmp_path / "mine", replace_existing=force)


def test_only_a_whole_artifact_and_nothing_else_may_be_replaced(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "artifact.json").write_text("{}")
    (copy / "thesis").write_text("mine")
    for folder in (tmp_path / "mine", copy):
        with pytest.raises(UserError, match="not an artifact, or holds other files"):
            store.check_free(folder, replace_existing=True)


def test_a_folder_in_use_by_another_build_is_not_taken_for_an_abandoned_one(tmp_path: Path) -> None:
    with staged(tmp_path / "a") as first, staged(tmp_path / "a") as second:
        assert first != second
        assert first.is_dir()


def test_a_destination_without_parent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        store.check_free(tmp_path / "no" / "where", replace_existing=False)
