from pathlib import Path

from builder.checkpoint.open import open_checkpoint
from tests.models import tiny_gguf, tiny_llama


def test_every_file_that_was_read_is_noted_by_name_and_size(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny", shards=2)
    (folder / "README.md").write_text("not read")
    source = open_checkpoint(str(folder)).source
    assert [file.name for file in source.files] == sorted(
        path.name for path in folder.iterdir() if path.name != "README.md"
    )
    assert source.num_bytes == sum(file.path.stat().st_size for file in source.files)


def test_a_source_is_named_without_its_path(tmp_path: Path, monkeypatch) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    monkeypatch.chdir(folder)
    assert open_checkpoint(".").source.name == "tiny"
    assert open_checkpoint(str(tiny_gguf(tmp_path / "t.gguf"))).source.name == "t.gguf"


def test_only_a_hub_model_has_a_commit(tmp_path: Path) -> None:
    assert open_checkpoint(str(tiny_llama(tmp_path))).source.commit is None
