from pathlib import Path

import pytest

from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.models import tiny_gguf, tiny_llama


def test_a_folder_a_gguf_file_and_its_name_are_told_apart(tmp_path: Path) -> None:
    assert open_checkpoint(str(tiny_llama(tmp_path / "folder"))).source.kind == "hf"
    assert open_checkpoint(str(tiny_gguf(tmp_path / "m.gguf"))).source.kind == "gguf"


@pytest.mark.parametrize(
    "model", ["./absent", "/absent/model", "absent", "org/name.gguf", "a/b/c", "", "a b/c"]
)
def test_what_is_neither_a_path_nor_a_hub_name_is_refused_with_what_would_be(model: str) -> None:
    with pytest.raises(CheckpointError, match=r"no such file or folder: .*org/name@revision"):
        open_checkpoint(model)


def test_a_folder_of_gguf_files_asks_for_one_of_them(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "a.gguf")
    tiny_gguf(tmp_path / "b.gguf")
    with pytest.raises(
        CheckpointError, match=r"name the one to use, such as .*a\.gguf \(others: b\.gguf\)"
    ):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "last.ckpt"]
)
def test_a_pickle_is_refused_and_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n")
    with pytest.raises(UnsupportedError, match="convert the model to safetensors"):
        open_checkpoint(str(tmp_path / name))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "notes.txt"])
def test_a_file_that_is_no_whole_model_is_refused_with_what_to_name(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"name its folder|must end in \.gguf"):
        open_checkpoint(str(tmp_path / name))


def test_opening_reads_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(weights[:header])
        stream.truncate(len(weights))  # a hole: all zero
    opened = open_checkpoint(str(folder))
    (folder / "model.safetensors").write_bytes(weights)
    assert opened.tensors["model.norm.weight"].read().any()


def test_a_name_that_the_system_refuses_is_one_clear_error() -> None:
    with pytest.raises(CheckpointError, match=r"cannot look at x+: file name too long"):
        open_checkpoint("x" * 5000)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint("a\0b")
