"""`builder verify --against` and `builder compile --gate` on tiny models: what is honest passes, what is spoilt is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from builder.artifact.gate_report import PLACE, read_report
from builder.artifact.store import open_artifact, read_manifest
from builder.cli.gate import running
from builder.cli.main import main
from builder.gate.thresholds import DEFAULTS
from builder.quant import int8
from tests.models import tiny_llama
from tests.quantized import write_gptq

FEW = ("--tokens", 200)
LENIENT = {"max_kl_mean": 0.1, "max_kl_p99": 0.5, "min_agreement": 0.8, "max_perplexity_ratio": 1.2}
"""Of a model with random weights, int8 diverges by 0.01, and 0.5 where the scales of a layer are doubled."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """Copy the tiny artifact, to have reports written into it."""
    return shutil.copytree(tiny_artifact, tmp_path / "artifact")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint of the same shape and other numbers."""
    return tiny_llama(tmp_path_factory.mktemp("stranger") / "tiny", seed=1)


@pytest.fixture
def thresholds(tmp_path: Path) -> Path:
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps(LENIENT | {"min_answers_equal": 0}))
    return path


def test_an_artifact_is_met_by_its_own_checkpoint(artifact: Path, tiny_folder: Path) -> None:
    result = run("verify", artifact, "--against", tiny_folder, *FEW)
    assert result.exit_code == 0, result.stderr
    title, *lines = result.stdout.splitlines()
    assert title == str(artifact)
    cells = dict(line.strip().split("  ", 1) for line in lines)
    assert cells["KL divergence, mean"].strip() == "0.00000, at most 1e-05: met"
    assert cells["top-1 agreement"].strip() == "1.00000, at least 0.998: met"
    assert cells["verdict"].strip() == "met"
    assert [line.partition(":")[0] for line in result.stderr.splitlines()][-2:] == [
        *("read text", "answer questions")
    ]


def test_the_report_says_what_was_done_and_is_bound_to_the_artifact(
    artifact: Path, tiny_folder: Path
) -> None:
    result = run("verify", artifact, "--against", tiny_folder, *FEW, "--json", "--quiet")
    assert (result.stderr, result.exit_code) == ("", 0)
    assert result.stdout_bytes == (artifact / PLACE).read_bytes()
    report = read_report(artifact)
    assert report is not None
    assert report.digest == read_manifest(artifact).digest
    assert report.reference == read_manifest(artifact).source
    assert (report.text.num_tokens, report.text.num_chunks, report.text.num_judged) == (200, 2, 198)
    assert report.answers.num_asked >= 20
    open_artifact(artifact)


def test_the_same_figures_come_again(artifact: Path, tiny_folder: Path) -> None:
    found = []
    for threads in (1, 2):
        arguments = ("--against", tiny_folder, *FEW, "--quiet", "--threads", threads)
        assert run("verify", artifact, *arguments).exit_code == 0
        found.append((artifact / PLACE).read_bytes())
    assert found[0] == found[1]


def test_another_model_misses_the_gate_and_is_refused_by_what_runs_it(
    artifact: Path, stranger: Path, tmp_path: Path
) -> None:
    result = run("verify", artifact, "--against", stranger, *FEW, "--quiet")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the quality gate was missed: kl_mean ")
    assert "; agreement " in result.stderr
    assert result.stderr.count("\n") == 1
    assert ": MISSED" in result.stdout
    assert not list(tmp_path.glob(".*"))

    refused = f"error: {artifact} missed its quality gate: kl_mean "
    generated = run("generate", artifact, "hi", "--max-tokens", 2)
    assert generated.stderr.startswith(refused)
    assert (generated.stdout, generated.exit_code) == ("", 2)
    deployed = run("deploy", artifact, tmp_path / "repository")
    assert deployed.stderr.startswith(refused)
    assert (deployed.exit_code, (tmp_path / "repository").exists()) == (2, False)

    allowed = run("generate", artifact, "hi", "--max-tokens", 2, "--allow-missed-gate")
    assert "it runs all the same" in allowed.stderr
    assert allowed.exit_code == 0
    deployed = run("deploy", artifact, tmp_path / "repository", "--allow-missed-gate")
    assert deployed.exit_code == 0
    assert run("validate", tmp_path / "repository").exit_code == 0


def test_inspect_shows_how_it_stands(artifact: Path, tiny_folder: Path) -> None:
    assert "\n  quality gate   none\n" in run("inspect", artifact).stdout
    run("verify", artifact, "--against", tiny_folder, *FEW, "--quiet")
    assert "\n  quality gate   met, cpu against tiny: kl_mean 0" in run("inspect", artifact).stdout
    text = (artifact / PLACE).read_text()
    (artifact / PLACE).write_text(text.replace(read_manifest(artifact).digest, "00"))
    assert "of another artifact, does not count" in run("inspect", artifact).stdout
    (artifact / PLACE).write_text("{")
    assert "quality gate   not readable: reports/gate.json" in run("inspect", artifact).stdout


def test_a_text_and_thresholds_of_the_user_count(
    artifact: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("all work and no play " * 9)
    (tmp_path / "strict.toml").write_text("max_perplexity_ratio = 0.5")
    arguments = ("--text", tmp_path / "mine.txt", "--thresholds", tmp_path / "strict.toml")
    result = run("verify", artifact, "--against", tiny_folder, *arguments, "--quiet")
    assert result.stderr == (
        "error: the quality gate was missed: perplexity_ratio 1, at most 0.5\n"
    )
    assert "mine.txt: 189 tokens in 2 chunks" in result.stdout


def spoilt(pack: Callable[..., Any]) -> Callable[..., Any]:
    """Double the scales of the layers that lead back from the inner size."""

    def twice(weight: np.ndarray, *group: int) -> Any:
        numbers, scales, *rest = pack(weight, *group)
        return (numbers, scales * 2 if weight.shape[1] == 96 else scales, *rest)

    return twice


def compile_gated(model: Path, destination: Path, thresholds: Path) -> Result:
    arguments = ("--gate-tokens", 200, "--gate-thresholds", thresholds, "--max-seq-len", 128)
    return run("compile", model, "-o", destination, "--int8", "--gate", *arguments, "--quiet")


def test_compile_judges_what_it_built(tiny_folder: Path, tmp_path: Path, thresholds: Path) -> None:
    result = compile_gated(tiny_folder, tmp_path / "built", thresholds)
    assert (result.stderr, result.exit_code) == ("", 0)
    report = read_report(tmp_path / "built")
    assert report is not None
    assert (report.verdict, report.precision, report.text.num_tokens) == ("met", "int8", 200)


def test_a_spoilt_layer_is_found_and_the_artifact_stays_with_its_report(
    tiny_folder: Path, tmp_path: Path, thresholds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "pack", spoilt(int8.pack))
    result = compile_gated(tiny_folder, tmp_path / "built", thresholds)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the quality gate was missed: kl_mean ")
    assert result.stdout.startswith(str(tmp_path / "built"))
    open_artifact(tmp_path / "built")
    assert run("generate", tmp_path / "built", "hi").exit_code == 2


def test_an_imported_checkpoint_is_judged_by_the_thresholds_of_its_own_format(
    tmp_path: Path,
) -> None:
    write_gptq(tmp_path / "m")
    run("compile", tmp_path / "m", "-o", tmp_path / "built", "--gate", "--gate-tokens", 100, "-q")
    report = read_report(tmp_path / "built")
    assert report is not None
    assert report.precision == "int4"
    bounds = {each.name: each.threshold for each in report.judgements}
    assert bounds["kl_mean"] == DEFAULTS["int4"].max_kl_mean


def test_an_interrupted_gate_says_that_the_artifact_is_there_and_how_to_judge_it(
    tiny_folder: Path, tmp_path: Path, thresholds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "ask", interrupt)
    result = compile_gated(tiny_folder, tmp_path / "built", thresholds)
    assert result.exit_code == 1
    assert "is there, but was not judged: run builder verify" in result.stderr
    open_artifact(tmp_path / "built")
    assert read_report(tmp_path / "built") is None
    assert "has not been judged" in run("generate", tmp_path / "built", "hi").stderr
    assert "none; it was compiled with --gate" in run("inspect", tmp_path / "built").stdout
    assert {path.name for path in tmp_path.iterdir()} == {"built", thresholds.name}


def test_what_a_killed_gate_left_goes_with_the_next(artifact: Path, tiny_folder: Path) -> None:
    left = artifact.with_name(f".{artifact.name}.reference.partial-00")
    (left / "float32").mkdir(parents=True)
    assert run("verify", artifact, "--against", tiny_folder, *FEW, "--quiet").exit_code == 0
    assert list(artifact.parent.iterdir()) == [artifact]


def test_figures_beyond_all_measure_are_a_report_that_can_be_read(
    artifact: Path, stranger: Path, tmp_path: Path
) -> None:
    loud = shutil.copytree(stranger, tmp_path / "loud")
    weights = load_file(loud / "model.safetensors")
    weights["model.norm.weight"][:] = 1e6
    save_file(weights, loud / "model.safetensors")
    result = run("verify", artifact, "--against", loud, *FEW, "--quiet")
    assert result.stderr.startswith("error: the quality gate was missed: kl_mean ")
    assert "missed its quality gate" in run("generate", artifact, "hi").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gate-tokens", 200), "go with --gate; add it"),
        (("--gate", "--gate-thresholds", "none.json"), "--thresholds none.json can't be read"),
        (("--gate", "--gate-text", "none.txt"), "--text none.txt can't be read"),
        (("--gate", "--target", "cpu", "--target", "portable"), "--gate judges one engine"),
    ],
)
def test_a_gate_that_can_not_be_held_is_refused_before_anything_is_built(
    tiny_folder: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    result = run("compile", tiny_folder, "-o", tmp_path / "built", "--quiet", *options)
    assert message in result.stderr
    assert result.exit_code == 2
    assert not (tmp_path / "built").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--determinism", "--against", "x"), "--determinism and --against are two proofs"),
        (("--tokens", 9), "--tokens has no effect here; it goes with --against"),
        (("--against", "x", "--prompts", 9), "--prompts has no effect here; it goes with --determ"),
        (("--against", "nowhere"), "nowhere"),
        (("--against", "x", "--thresholds", "a.yaml"), "is neither .json nor .toml"),
    ],
)
def test_wrong_usage_is_refused_by_name(
    artifact: Path, options: tuple[object, ...], message: str
) -> None:
    result = run("verify", artifact, "--quiet", *options)
    assert message in result.stderr
    assert result.exit_code == 2
    assert not (artifact / PLACE).exists()


def test_a_text_that_is_too_short_is_refused(artifact: Path, tiny_folder: Path) -> None:
    result = run("verify", artifact, "--against", tiny_folder, "--tokens", 10**6, "--quiet")
    assert "the gate reads 1000000 tokens of a text that has " in result.stderr
    assert result.exit_code == 2


def test_a_checkpoint_with_other_tokens_is_refused(artifact: Path, tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other", vocab_size=300)
    result = run("verify", artifact, "--against", other, *FEW, "--quiet")
    assert "has a vocabulary of 300" in result.stderr
    assert "name the checkpoint that the artifact was compiled from" in result.stderr
    assert result.exit_code == 2


def test_an_artifact_without_room_for_a_question_is_refused_before_a_text_is_read(
    tiny_folder: Path, tmp_path: Path
) -> None:
    root = tmp_path / "narrow"
    assert run("compile", tiny_folder, "-o", root, "--max-seq-len", 32, "-q").exit_code == 0
    result = run("verify", root, "--against", tiny_folder, *FEW)
    assert "has max_seq_len 32, which no question of the gate fits into" in result.stderr
    assert "read text" not in result.stderr
    assert result.exit_code == 2
