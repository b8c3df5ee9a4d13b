"""A benchmark that can't be run as asked says so in one line."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from reporting.failures import exit_with, require_room

from builder.artifact.config import Limits
from builder.artifact.store import Artifact
from builder.errors import ArtifactError, EngineError, UserError
from tests.built import compile_model
from tests.models import tiny_llama

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "benchmarks"
LIMITS = Limits(512, 32, 512, 32, 100)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An artifact for sequences of 64 tokens."""
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    return compile_model(model, tmp_path_factory.mktemp("built") / "artifact", max_seq_len=64)


def line_of(name: str, *arguments: str) -> tuple[int, str]:
    """Run a benchmark, and give its exit code and the only line that it says."""
    command = [sys.executable, BENCHMARKS / f"{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


@pytest.mark.parametrize("name", ["engine", "prefix", "peers"])
def test_an_artifact_that_is_not_there_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    code, line = line_of(name, "--artifact", str(tmp_path / "nothing"))
    assert code == 2
    assert line.startswith("error: there is no artifact at")


def test_a_number_of_threads_that_is_out_of_range_is_told_in_one_line(short: Artifact) -> None:
    code, line = line_of("engine", "--artifact", str(short.root), "--threads", "9999")
    assert code == 2
    assert "9999 threads" in line


@pytest.mark.parametrize("name", ["engine", "neighbour", "roofline"])
def test_an_artifact_for_short_sequences_is_refused_with_what_is_needed(
    name: str, short: Artifact
) -> None:
    code, line = line_of(name, "--artifact", str(short.root), "--threads", "1")
    assert code == 2
    assert "max_seq_len 64, this benchmark needs 512; compile with --max-seq-len 512" in line


def test_room_counts_the_blocks_of_all_sequences() -> None:
    require_room(LIMITS, seq_len=100, num_seqs=14, block_size=16)
    with pytest.raises(UserError, match="pool of 100 blocks, this benchmark needs 106"):
        require_room(LIMITS, seq_len=100, num_seqs=15, block_size=16)
    with pytest.raises(UserError, match="max_seq_len 512"):
        require_room(replace(LIMITS, num_blocks=1000), seq_len=513, num_seqs=1, block_size=16)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ArtifactError("what"), 2, "error: what\n"),
        (EngineError("what"), 1, "error: what\n"),
        (
            subprocess.CalledProcessError(3, ["tool", "x"]),
            3,
            "error: tool failed with exit code 3\n",
        ),
        (FileNotFoundError(2, "no", "here"), 2, "error: there is no here\n"),
    ],
)
def test_each_failure_has_its_line_and_exit_code(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        exit_with(main)
    assert end.value.code == code
    assert capsys.readouterr().err == said


def test_a_benchmark_that_ends_well_gives_its_own_code() -> None:
    with pytest.raises(SystemExit) as end:
        exit_with(lambda: 5)
    assert end.value.code == 5


def test_a_defect_keeps_its_traceback() -> None:
    def main() -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        exit_with(main)
