"""Damaged and forged files: always one clear line, never another exception, a hang or a flood of memory."""

import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.checkpoint.open import open_checkpoint
from builder.errors import ForerunError
from tests.models import tiny_gguf, tiny_llama

ATTEMPTS = 100
ALLOWED_BYTES = 200 << 20

Damage = Callable[[bytearray, int, random.Random], bytearray]


def flip(raw: bytearray, at: int, draw: random.Random) -> bytearray:
    raw[at] ^= 1 << draw.randrange(8)
    return raw


def cut(raw: bytearray, at: int, draw: random.Random) -> bytearray:
    return raw[:at]


def overwrite(raw: bytearray, at: int, draw: random.Random) -> bytearray:
    raw[at : at + 8] = draw.choice(
        (bytes(8), b"\xff" * 8, b"\x00" * 7 + b"\x7f", draw.randbytes(8))
    )
    return raw


def insert(raw: bytearray, at: int, draw: random.Random) -> bytearray:
    raw[at:at] = draw.choice(
        (b'"', b"{", b"[", b"9" * 20, b"\\", b"-", draw.randbytes(draw.randint(1, 9)))
    )
    return raw


DAMAGES = (flip, cut, overwrite, insert)


def read_everything(model: Path) -> None:
    checkpoint = open_checkpoint(str(model))
    for tensor in checkpoint.tensors.values():
        tensor.read()


def attempt(model: Path, file: Path, raw: bytes) -> str | None:
    """Write `raw` and read the model; give the error's text, or None where the damage changed only numbers."""
    file.write_bytes(raw)
    try:
        read_everything(model)
    except ForerunError as error:
        return str(error)
    return None


def attack(model: Path, file: Path, seed: int) -> list[str]:
    """Damage `file` in many ways, mostly near its beginning, and give the texts of the errors."""
    draw = random.Random(seed)  # noqa: S311 (a test wants the same numbers every time)
    whole = file.read_bytes()
    texts: list[str] = []
    for _ in range(ATTEMPTS):
        at = draw.randrange(min(len(whole), draw.choice((32, 400, 4000, len(whole)))))
        text = attempt(model, file, bytes(draw.choice(DAMAGES)(bytearray(whole), at, draw)))
        if text is not None:
            texts.append(text)
    file.write_bytes(whole)
    read_everything(model)
    return texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("hostile") / "m", shards=2, vocab_size=270)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
    ],
)
def test_a_damaged_file_of_a_folder_is_one_clear_line(
    name: str, folder: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(folder, tmp_path / "m")
    texts = attack(model, model / name, seed=1)
    assert len(texts) > ATTEMPTS // 4
    assert all("\n" not in text and len(text) < 1000 for text in texts)


@pytest.mark.parametrize("stored", ["F32", "Q4_1"])
def test_a_damaged_gguf_file_is_one_clear_line(stored: str, tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored=stored)
    texts = attack(model, model, seed=2)
    assert len(texts) > ATTEMPTS // 4
    assert all("\n" not in text and len(text) < 1000 for text in texts)


def test_damage_does_not_flood_the_memory(folder: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    model = shutil.copytree(folder, tmp_path / "m")
    attack(model, model / "model-00001-of-00002.safetensors", seed=3)
    gguf = tiny_gguf(tmp_path / "m.gguf")
    attack(gguf, gguf, seed=3)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < ALLOWED_BYTES


@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "config.json", "tokenizer.json"]
)
def test_a_file_cut_at_every_tenth_byte_of_its_beginning_is_refused(
    name: str, folder: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(folder, tmp_path / "m")
    whole = (model / name).read_bytes()
    for size in range(0, min(len(whole) - 2, 1000), 10):
        assert attempt(model, model / name, whole[:size]) is not None


def test_a_list_that_nests_without_end_is_refused(folder: Path, tmp_path: Path) -> None:
    model = shutil.copytree(folder, tmp_path / "m")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        whole = (model / name).read_bytes()
        text = attempt(model, model / name, b'{"a":' * 100_000)
        assert text is not None
        (model / name).write_bytes(whole)
