"""What is made for other engines: environments, the checkpoint, rounded weights."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from peer_engines import installing
from peer_engines.checkpoint import once
from peer_engines.installing import PeerError, Recipe, call, install
from peer_engines.w8a8_model import rounded, write_w8a8
from safetensors.numpy import load_file, save_file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Write down what would be run."""
    written: list[list[str]] = []

    def note(command: list[object]) -> str:
        texts = [str(part) for part in command]
        written.append(texts)
        if "venv" in texts:
            Path(texts[-1]).mkdir()
        return ""

    monkeypatch.setattr(installing, "call", note)
    return written


def test_torch_goes_first_and_what_breaks_it_goes_last(
    calls: list[list[str]], tmp_path: Path
) -> None:
    install(tmp_path / "peer", Recipe((("torch==1",), ("peer==2", "other")), ("torchvision",)))
    assert [command[5:] for command in calls[1:]] == [
        ["install", "torch==1"],
        ["install", "peer==2", "other"],
        ["uninstall", "--yes", "torchvision"],
    ]


def test_an_environment_is_made_once(calls: list[list[str]], tmp_path: Path) -> None:
    for _ in range(2):
        install(tmp_path / "peer", Recipe((("peer==2",),)))
    assert len(calls) == 2


def test_another_version_makes_it_again(calls: list[list[str]], tmp_path: Path) -> None:
    install(tmp_path / "peer", Recipe((("peer==2",),)))
    install(tmp_path / "peer", Recipe((("peer==3",),)))
    assert len(calls) == 4


def test_a_failed_step_says_what_the_program_said_last() -> None:
    code = "import sys; print('first'); print('no such thing', file=sys.stderr); sys.exit(3)"
    with pytest.raises(PeerError, match=r"ended with 3: no such thing$"):
        call([sys.executable, "-c", code])


def test_a_step_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PeerError, match=r"took more than 0\.2 s"):
        call([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_a_half_written_model_is_written_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        raise PeerError("disk full")

    with pytest.raises(PeerError):
        once(tmp_path / "model", fail)
    assert once(tmp_path / "model", Path.mkdir).is_dir()


def test_a_written_model_is_kept(tmp_path: Path) -> None:
    once(tmp_path / "model", Path.mkdir)
    once(tmp_path / "model", lambda _folder: pytest.fail("written twice"))


def test_rounded_weights_are_within_half_a_scale() -> None:
    weight = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
    weight[3] = 0
    found = rounded("x", weight)
    assert found["x"].dtype == np.int8
    error = np.abs(found["x"] * found["x_scale"] - weight)
    assert (error <= found["x_scale"] * 0.5001).all()


def test_only_linear_weights_are_rounded(tmp_path: Path) -> None:
    checkpoint, ones = tmp_path / "checkpoint", np.ones((4, 4), np.float32)
    checkpoint.mkdir()
    tensors = {"layers.0.q_proj.weight": ones, "embed_tokens.weight": ones}
    save_file(tensors, checkpoint / "model.safetensors")
    (checkpoint / "config.json").write_text('{"model_type": "llama"}')
    write_w8a8(checkpoint, tmp_path / "rounded")
    written = load_file(tmp_path / "rounded" / "model.safetensors")
    kinds = {name: array.dtype.name for name, array in written.items()}
    assert kinds == {
        "layers.0.q_proj.weight": "int8",
        "layers.0.q_proj.weight_scale": "float32",
        "embed_tokens.weight": "float32",
    }
    config = json.loads((tmp_path / "rounded" / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
