"""`builder compile`: flags, the plan, progress, and what each stream gets."""

import errno
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builder import pipeline
from builder.artifact.manifest import FILE_NAME
from builder.artifact.store import open_artifact
from builder.cli import compile as command
from builder.cli.display import TerminalDisplay
from builder.cli.main import main
from builder.errors import UserError
from tests.compiling import compile_, leftovers

PLAN = """\
Plan
  source       tiny (hf, SIZE)
  model        llama: 2 layers, hidden 64, 4 heads over 2 KV heads of 16, vocabulary 259
  precision    float32, quantization none
  target       cpu
  weights      SIZE
  limits       512 tokens a sequence, 32 sequences and 512 tokens a step
  KV cache     float32, 512 B a token, 16384 tokens in blocks of 16, SIZE in all
  peak memory  about SIZE while building, of SIZE available
  disk         about SIZE of SIZE free
  output       FOLDER
hash source: TIME
build graph for cpu: TIME
write cpu: TIME
verify: TIME
"""


def without_figures(text: str, folder: Path) -> str:
    text = re.sub(r"[\d.]+ (kB|MB|GB|TB)\b", "SIZE", text.replace(str(folder), "FOLDER"))
    return re.sub(r": [\d.]+ m?s\n", ": TIME\n", text)


def test_the_plan_and_the_progress_go_to_stderr_and_one_line_to_stdout(
    tiny_folder: Path, tmp_path: Path
) -> None:
    destination = tmp_path / "out"
    result = compile_(tiny_folder, "-o", destination)
    assert result.exit_code == 0
    assert without_figures(result.stderr, destination) == PLAN
    assert re.fullmatch(rf"{re.escape(str(destination))}: \d+ kB in [\d.]+ m?s\n", result.stdout)
    assert open_artifact(destination).manifest.model.num_layers == 2


def test_quiet_leaves_the_line_on_stdout(tiny_folder: Path, tmp_path: Path) -> None:
    result = compile_(tiny_folder, "-o", tmp_path / "out", "-q")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    assert result.exit_code == 0


def test_a_terminal_gets_a_table_and_bars(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "display_for", lambda **_: TerminalDisplay(sys.stderr))
    result = compile_(tiny_folder, "-o", tmp_path / "out")
    assert "─" in result.stderr
    assert "hash source" in result.stderr
    assert result.stdout.startswith(f"{tmp_path / 'out'}: ")


def test_without_o_the_folder_is_named_after_model_format_and_ranks(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compile_(tiny_folder, "--int8", "-q").exit_code == 0
    assert leftovers(tmp_path) == ["tiny-int8-tp1"]


def test_limits_reach_the_artifact(tiny_folder: Path, tmp_path: Path) -> None:
    options = "--max-seq-len 96 --max-num-seqs 3 --max-num-tokens 48 --block-size 32"
    sizes = ["--kv-cache-bytes", "1MiB"]
    result = compile_(tiny_folder, "-o", tmp_path / "out", "-q", *options.split(), *sizes)
    assert result.exit_code == 0, result.stderr
    manifest = open_artifact(tmp_path / "out").manifest
    limits = manifest.limits
    assert (limits.max_seq_len, limits.max_num_seqs, limits.max_num_tokens) == (96, 3, 48)
    assert manifest.kv.block_size == 32
    assert limits.num_blocks == 1 + (1 << 20) // manifest.kv.bytes_per_block


@pytest.mark.parametrize("flags", [["--int8"], ["--quant", "int8"], ["--int8", "--quant", "int8"]])
def test_a_format_is_asked_for_by_flag_or_by_name(
    tiny_folder: Path, tmp_path: Path, flags: list[str]
) -> None:
    assert compile_(tiny_folder, "-o", tmp_path / "out", "-q", *flags).exit_code == 0
    (engine,) = open_artifact(tmp_path / "out").manifest.engines
    assert engine.requested == "int8"
    assert "int8" in engine.realized.values()


@pytest.mark.parametrize(
    ("flags", "requested"),
    [
        ("--int4", "int4"),
        ("--quant uint4", "uint4"),
        ("--int8 --group channel", "int8-channel"),
        ("--int4 --group 64", "int4-g64"),
        ("--dtype bfloat16", "bfloat16"),
        ("--quant fp8-dynamic", "fp8-dynamic"),
        ("--quant fp8-block", "fp8-block"),
        ("--quant nvfp4-weight-only", "nvfp4-weight-only"),
        ("--quant int8-weight-only", "int8-weight-only"),
        ("--quant mxfp4", "mxfp4"),
        ("--quant fp8-weight-only", "fp8-weight-only"),
    ],
)
def test_groups_and_forms_reach_the_artifact_and_its_name(
    flags: str, requested: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = compile_(tiny_folder, "-q", *flags.split())
    assert result.exit_code == 0, result.stderr
    assert leftovers(tmp_path) == [f"tiny-{requested}-tp1"]
    (engine,) = open_artifact(tmp_path / f"tiny-{requested}-tp1").manifest.engines
    assert engine.requested == requested


@pytest.mark.parametrize(
    "name",
    [
        "fp8-dynamic",
        "fp8-block",
        "fp8-weight-only",
        "nvfp4-weight-only",
        "mxfp4",
        "int8-weight-only",
    ],
)
def test_an_emulated_format_is_called_that_in_the_plan_the_manifest_and_by_inspect(
    name: str, tiny_folder: Path, tmp_path: Path
) -> None:
    result = compile_(tiny_folder, "-o", tmp_path / "out", "--quant", name)
    assert f"note: target cpu emulates {name}: its exact numbers" in result.stderr
    (engine,) = open_artifact(tmp_path / "out").manifest.engines
    assert engine.emulated == (name,)
    assert engine.compute.startswith(f"emulation of {name}: exactly its weights")
    assert ("rounded to E4M3 per token" in engine.compute) == (name in ("fp8-dynamic", "fp8-block"))
    assert set(engine.realized.values()) == {name, "float32"}
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "out")]).stdout
    assert f"asked {name}, is 1 x float32, 14 x {name} (emulated)" in shown


def test_an_existing_artifact_is_replaced_with_force_only(
    tiny_folder: Path, tmp_path: Path
) -> None:
    destination = tmp_path / "out"
    assert compile_(tiny_folder, "-o", destination, "-q").exit_code == 0
    refused = compile_(tiny_folder, "-o", destination, "-q", "--int8")
    assert "already holds an artifact; add --force to replace it" in refused.stderr
    assert refused.exit_code == 2
    assert open_artifact(destination).manifest.engines[0].requested == "float32"
    assert compile_(tiny_folder, "-o", destination, "-q", "--int8", "--force").exit_code == 0
    assert open_artifact(destination).manifest.engines[0].requested == "int8"
    assert leftovers(tmp_path) == ["out"]


def test_a_folder_that_is_no_artifact_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = compile_("no-such-checkpoint", "-o", tmp_path, "--force")
    assert "exists and is not an artifact" in result.stderr
    assert result.exit_code == 2
    assert leftovers(tmp_path) == ["thesis.txt"]


def test_a_parent_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = compile_("no-such-checkpoint", "-o", tmp_path / "none" / "out")
    assert f"the folder {tmp_path / 'none'} does not exist" in result.stderr
    assert result.exit_code == 2


def test_the_same_input_gives_the_same_bytes(
    tiny_folder: Path, tiny_artifact: Path, tmp_path: Path
) -> None:
    assert compile_(tiny_folder, "-o", tmp_path / "out", "--max-seq-len", 128).exit_code == 0
    again = (tmp_path / "out" / FILE_NAME).read_bytes()
    assert again == (tiny_artifact / FILE_NAME).read_bytes()


def test_a_peak_above_the_available_memory_is_a_warning(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.cli.plan.available_memory_bytes", lambda: 1000)
    result = compile_(tiny_folder, "-o", tmp_path / "out")
    assert "warning: the build may take" in result.stderr
    assert "1.00 kB are available" in result.stderr
    assert result.exit_code == 0


def test_a_disk_that_is_too_small_is_refused(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    result = compile_(tiny_folder, "-o", tmp_path / "out")
    assert "free some space or choose another -o" in result.stderr.splitlines()[-1]
    assert result.exit_code == 2
    assert leftovers(tmp_path) == []


def test_an_interrupted_build_leaves_nothing_behind_and_says_so(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "_try_engine", interrupt)
    result = compile_(tiny_folder, "-o", tmp_path / "out", "-q")
    assert result.stderr == "error: interrupted; nothing was left behind\n"
    assert result.exit_code == 1
    assert leftovers(tmp_path) == []


def test_a_full_disk_in_mid_build_leaves_nothing_behind(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pipeline, "_try_engine", fail)
    result = compile_(tiny_folder, "-o", tmp_path / "out", "-q")
    assert result.stderr.startswith(f"error: can't write {tmp_path / 'out'}: No space left")
    assert result.stderr.count("\n") == 1
    assert result.exit_code == 1
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "is_terminal", "expected"),
    [([], True, True), (["-q"], True, False), ([], False, False)],
)
def test_a_download_shows_bars_to_people_who_did_not_ask_for_silence(
    flags: list[str], is_terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def plan(_: object, *, shows_bars: bool) -> None:
        asked.append(shows_bars)
        raise UserError("enough")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    monkeypatch.setattr(pipeline, "plan", plan)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(UserError, match="enough"):
        command.command.main(["org/tiny", *flags], standalone_mode=False)
    assert asked == [expected]
