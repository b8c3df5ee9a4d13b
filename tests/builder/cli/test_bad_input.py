"""Broken checkpoints and full disks: one line that names the thing, the right exit code, nothing left behind."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from builder import archs
from builder.cli.main import main
from tests.models import tiny_gguf, tiny_llama

WEIGHTS = "model.safetensors"
WORD_PIECE = {"type": "WordPiece", "prefix": "##", "cleanup": True}
BUILDER = [sys.executable, "-m", "builder.cli.main"]


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_tokenizer(folder: Path, **fields: Any) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_weights(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def name_an_absent_shard(folder: Path) -> None:
    tiny_llama(folder, shards=2)
    (folder / WEIGHTS).unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()


def leave_pickled_weights_only(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


CHANGES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "truncated weights": (lambda folder: truncate(folder / WEIGHTS), (WEIGHTS,)),
    "empty weights": (lambda folder: (folder / WEIGHTS).write_bytes(b""), (WEIGHTS,)),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), ("safetensors",)),
    "an absent shard": (name_an_absent_shard, ("model-00002-of-00002.safetensors",)),
    "pickled weights": (leave_pickled_weights_only, ("pytorch_model.bin", "save_pretrained")),
    "an unknown architecture": (
        lambda folder: edit_config(folder, architectures=["MambaForCausalLM"], model_type="mamba"),
        ("mamba",),
    ),
    "an unknown rope type": (
        lambda folder: edit_config(folder, rope_scaling={"rope_type": "foo", "factor": 2.0}),
        ("foo",),
    ),
    "an unknown tensor": (
        lambda folder: edit_weights(
            folder, lambda weights: weights.update({"model.layers.0.q_norm.weight": np.ones(16)})
        ),
        ("model.layers.0.q_norm.weight",),
    ),
    "a missing tensor": (
        lambda folder: edit_weights(folder, lambda weights: weights.pop("model.norm.weight")),
        ("model.norm.weight",),
    ),
    "a tensor of a wrong shape": (
        lambda folder: edit_weights(
            folder, lambda weights: weights.update({"model.norm.weight": np.ones(7, np.float32)})
        ),
        ("model.norm.weight",),
    ),
    "no config": (lambda folder: (folder / "config.json").unlink(), ("config.json",)),
    "a broken config": (lambda folder: truncate(folder / "config.json"), ("config.json",)),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), ("tokenizer.json",)),
    "a broken tokenizer": (lambda folder: truncate(folder / "tokenizer.json"), ("tokenizer.json",)),
    "a tokenizer that can't be served": (
        lambda folder: edit_tokenizer(folder, decoder=WORD_PIECE),
        ("WordPiece",),
    ),
    "a broken chat template": (
        lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"),
        ("template",),
    ),
}


def check_refused(model: Path, output: Path, named: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["compile", str(model), "-o", str(output), "--quiet"])
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, "one line"
    assert "defect" not in result.stderr
    assert [name for name in named if name not in result.stderr] == []
    assert result.stdout == ""
    assert result.exit_code == 2
    assert list(output.parent.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("kind", CHANGES)
def test_a_checkpoint_with(kind: str, tmp_path: Path) -> None:
    """Is refused by the name of what is wrong."""
    change, named = CHANGES[kind]
    model = tiny_llama(tmp_path / "model")
    change(model)
    (tmp_path / "into").mkdir()
    check_refused(model, tmp_path / "into" / "out", named)


def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    check_refused(tmp_path / "none.gguf", tmp_path / "into" / "out", ("none.gguf",))


def test_a_truncated_gguf_file_is_named(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "tiny.gguf")
    truncate(model)
    (tmp_path / "into").mkdir()
    check_refused(model, tmp_path / "into" / "out", ("tiny.gguf",))


def compile_in_a_process(model: Path, output: Path, **options: Any) -> subprocess.Popen[str]:
    arguments = [*BUILDER, "compile", str(model), "-o", str(output)]
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_compile_leaves_nothing_behind(
    number: signal.Signals, tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "model", num_hidden_layers=60)  # takes a second to build
    output = tmp_path / "into" / "out"
    output.parent.mkdir()
    with compile_in_a_process(model, output) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("hash source"):
            assert process.poll() is None
        found = [path.name for path in output.parent.iterdir()]
        process.send_signal(number)
        printed, errors = process.communicate()
    assert [name.startswith(".out.partial-") for name in found] == [True], "the build was running"
    assert errors.splitlines()[-1] == "error: interrupted; nothing was left behind"
    assert "Traceback" not in errors
    assert printed == ""
    assert process.returncode == 1
    assert list(output.parent.iterdir()) == []


SECOND_SIGNAL = """
import os, shutil, signal, sys
from builder.cli.main import main
remove = shutil.rmtree
def interrupted(*arguments, **options):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    remove(*arguments, **options)
shutil.rmtree = interrupted
main(sys.argv[1:])
"""


def test_signals_during_the_clean_up_change_nothing(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", num_hidden_layers=60)
    output = tmp_path / "into" / "out"
    output.parent.mkdir()
    command = [sys.executable, "-c", SECOND_SIGNAL, "compile", str(model), "-o", str(output)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("hash source"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert errors.splitlines()[-1] == "error: interrupted; nothing was left behind"
    assert process.returncode == 1
    assert list(output.parent.iterdir()) == []


def test_a_source_that_is_cut_short_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama(tmp_path / "model")
    weights = model / "model.safetensors"
    build_graph = archs.build_graph

    def cut_short(*arguments: Any) -> Any:
        os.truncate(weights, weights.stat().st_size // 2)
        return build_graph(*arguments)

    monkeypatch.setattr(archs, "build_graph", cut_short)
    (tmp_path / "into").mkdir()
    check_refused(model, tmp_path / "into" / "out", ("model.safetensors became shorter",))


def test_a_disk_that_fills_up_in_mid_compile_leaves_nothing_behind(
    tiny_folder: Path, tmp_path: Path
) -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with compile_in_a_process(tiny_folder, tmp_path / "out", preexec_fn=limit_files) as process:
        output, errors = process.communicate()
    assert errors.splitlines()[-1].startswith(f"error: can't write {tmp_path / 'out'}: ")
    assert "Traceback" not in errors
    assert output == ""
    assert process.returncode == 1
    assert list(tmp_path.iterdir()) == []
