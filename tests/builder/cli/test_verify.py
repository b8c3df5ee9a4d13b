"""`builder verify`: the table of ways over the scripted engine, over a real one, and over one that cheats."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from builder.artifact.step import Float32, RowAsks, StepResult, StepTensors
from builder.artifact.store import Artifact
from builder.cli.determinism.permutations import PERMUTATIONS
from builder.cli.main import main
from builder.targets.executor import result_from_rows
from tests.builder.cli.scripted_engine import Watched

WAYS = (
    *("alone, again", "together", "together, last first", "joining in flight", "in chunks"),
    *("after a cache hit", "preempted", "n choices", "speculated", "streamed", "all of it"),
)
SMALL = ("--determinism", "--prompts", 6, "--max-tokens", 16)


def verify(artifact: Path, *arguments: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, (artifact, *arguments))])


def ways(result: Result) -> dict[str, dict[str, object]]:
    return {way["name"]: way for way in json.loads(result.stdout)["ways"]}


def test_every_way_is_a_line_of_the_table(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_backend.loading.open_executor", Repeating)
    result = verify(tiny_artifact, *SMALL, "--quiet")
    title, *lines = result.stdout.splitlines()
    assert title == str(tiny_artifact)
    assert [line.strip().partition("  ")[0] for line in lines] == list(WAYS)
    assert "DIFFERS" not in result.stdout

    assert (result.stderr, result.exit_code) == ("", 0)


@pytest.mark.usefixtures("executors")
def test_a_way_that_did_not_come_about_is_no_proof(tiny_artifact: Path) -> None:
    result = verify(tiny_artifact, *SMALL, "--quiet", "--json")
    found, report = ways(result), json.loads(result.stdout)
    # The scripted engine's text never repeats itself, so nothing can be drafted.
    assert {name for name, way in found.items() if not way["is_exercised"]} == {"speculated"}
    assert len(found) == len(PERMUTATIONS)
    assert all(way["num_tokens"] for way in found.values())
    assert (report["equal"], report["proved"]) == (True, False)
    assert result.stderr == (
        "error: no answer differs, but not all is proved, as this did not come about: speculated;"
        " raise --prompts or --max-tokens, or compile with larger limits\n"
    )
    assert result.exit_code == 2


def test_where_every_way_came_about_all_is_proved(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_backend.loading.open_executor", Repeating)
    result = verify(tiny_artifact, *SMALL, "--quiet", "--json")
    report = json.loads(result.stdout)
    assert (report["equal"], report["proved"]) == (True, True)
    assert (result.stderr, result.exit_code) == ("", 0)


def test_an_engine_that_serves_one_at_a_time_proves_nothing_of_company(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_backend.loading.open_executor", Lonely)
    result = verify(tiny_artifact, *SMALL, "--quiet")
    assert "not exercised: 6 answers, 96 tokens, 0 requests at once" in result.stdout
    assert "did not come about: together, together, last first, joining in flight" in result.stderr
    assert result.exit_code == 2


class Repeating(Watched):
    """An engine that says one token for ever, so that drafts are right."""

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        super().execute(step, asks)
        rows = np.zeros((len(step.logit_rows), self.vocab_size), np.float32)
        rows[:, 65] = 20
        return result_from_rows(rows, asks)


class Lonely(Watched):
    """An engine with room for one sequence in a step."""

    def __init__(self, artifact: Artifact, *, target: str | None, threads: int | None) -> None:
        super().__init__(artifact, target=target, threads=threads)
        self.limits = dataclasses.replace(self.limits, max_num_seqs=1)


def test_a_real_engine_answers_the_same_in_every_way(tiny_artifact: Path) -> None:
    result = verify(tiny_artifact, *SMALL, "--quiet", "--json")
    # Of a model with random weights, no guess is right.
    assert "did not come about: speculated;" in result.stderr
    assert json.loads(result.stdout)["equal"] is True
    assert {name for name, way in ways(result).items() if way["is_exercised"]} >= {
        *("together", "in chunks", "after a cache hit", "preempted", "all of it")
    }


@pytest.mark.usefixtures("executors")
def test_progress_goes_to_stderr(tiny_artifact: Path) -> None:
    result = verify(tiny_artifact, *SMALL)
    assert [line.partition(":")[0] for line in result.stderr.splitlines()][:4] == [
        *("verify", "load", "alone", "alone again")
    ]
    assert result.stdout.startswith(str(tiny_artifact))


class Position(Watched):
    """An engine that loses a little where a token is computed first in its step."""

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        result = super().execute(step, asks)
        rows = [result.full_row(row).copy() for row in range(len(step.logit_rows))]
        for row, token in zip(rows, step.logit_rows.tolist(), strict=True):
            if step.num_tokens > 1 and token == 0:
                row[7] += 1.0
        return result_from_rows(stacked(rows, self.vocab_size), asks)


class LastBits(Watched):
    """An engine whose logits differ by a millionth where it has company; it hardly moves any token."""

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        result = super().execute(step, asks)
        rows = [result.full_row(row).copy() for row in range(len(step.logit_rows))]
        for row in rows:
            if step.num_seqs > 1:
                row[row < row.max()] -= 2.0**-18
        return result_from_rows(stacked(rows, self.vocab_size), asks)


def stacked(rows: list[Float32], vocab_size: int) -> Float32:
    return np.array(rows, np.float32).reshape(len(rows), vocab_size)


def test_an_engine_that_heeds_its_company_is_found_out(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_backend.loading.open_executor", Position)
    result = verify(tiny_artifact, *SMALL, "--quiet", "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: answers depend on how they are served: together")
    assert result.stderr.count("\n") == 1
    found = ways(result)
    assert found["alone, again"]["differences"] == []
    assert found["together"]["differences"]
    assert json.loads(result.stdout)["equal"] is False
    table = verify(tiny_artifact, *SMALL, "--quiet").stdout
    assert "DIFFERS: prompt 1 choice 0: " in table


def test_a_difference_in_the_last_bits_of_a_logprob_is_found_out(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_backend.loading.open_executor", LastBits)
    result = verify(tiny_artifact, *SMALL, "--quiet", "--json")
    assert result.exit_code == 1
    (first, *_) = ways(result)["together"]["differences"]  # type: ignore[misc]
    assert "logprobs from token" in first


def test_without_determinism_only_the_files_are_checked(artifact_folder: Path) -> None:
    result = verify(artifact_folder)
    assert result.exit_code == 0
    assert result.stderr.endswith("verified: 3 files, 5.01 kB\n")
    assert result.stdout == ""


def test_without_determinism_json_counts_the_files(artifact_folder: Path) -> None:
    result = verify(artifact_folder, "--json")
    assert json.loads(result.stdout) == {"artifact": str(artifact_folder), "files": 3}


@pytest.mark.parametrize("options", [(), ("--determinism",)], ids=["files", "determinism"])
def test_an_altered_file_is_refused_by_name(
    artifact_folder: Path, options: tuple[str, ...]
) -> None:
    (artifact_folder / "weights/rank0.safetensors").unlink()
    (artifact_folder / "weights/rank0.safetensors").write_bytes(b"v" * 5000)
    result = verify(artifact_folder, *options)
    assert "weights/rank0.safetensors" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "option",
    [("--prompts", 4), ("--max-tokens", 4), ("--target", "cpu"), ("--threads", 1)],
    ids=lambda option: option[0],
)
def test_options_of_the_engine_are_refused_where_it_does_not_run(
    artifact_folder: Path, option: tuple[str, object]
) -> None:
    result = verify(artifact_folder, *option)
    also = " or --against" if option[0] in ("--target", "--threads") else ""
    assert result.stderr == (
        f"error: {option[0]} has no effect here; it goes with --determinism{also}\n"
    )
    assert result.exit_code == 2


@pytest.mark.usefixtures("executors")
def test_limits_without_room_for_a_proof_are_named(tiny_artifact: Path) -> None:
    result = verify(tiny_artifact, "--determinism", "--max-tokens", 60, "--quiet")
    assert "answers of 60 tokens leave 4 of max_seq_len 64 for prompts" in result.stderr
    assert result.exit_code == 2
