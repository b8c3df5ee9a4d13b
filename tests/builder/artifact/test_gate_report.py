"""The report of a gate: read back as written, refused when broken, and heeded by whatever would run its artifact."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.artifact.gate_report import (
    PLACE,
    AnswerCounts,
    GateReport,
    Judgement,
    TextRecord,
    check_gate,
    decode,
    encode,
    read_report,
    verdict_of,
    write_report,
)
from builder.artifact.manifest import FileRecord, Manifest, Source
from builder.errors import ArtifactError

GOOD = Judgement("kl_mean", 0.01, "at most", 0.02)
BAD = Judgement("agreement", 0.5, "at least", 0.9)


def make_report(*judgements: Judgement, digest: str = "ab") -> GateReport:
    return GateReport(
        schema=1,
        digest=digest,
        version="0.1.0",
        target="cpu",
        precision="int8",
        kv="bfloat16",
        reference=Source("hf", "tiny", None, {"config.json": FileRecord(10, "00")}),
        reference_target="cpu",
        text=TextRecord("text", "11", 10, 9, 1),
        perplexity=3.0,
        reference_perplexity=2.0,
        answers=AnswerCounts("22", 4, 3, 2, 2),
        judgements=judgements,
        verdict=verdict_of(judgements),
    )


def manifest(digest: str, *, is_gated: bool = False) -> Manifest:
    made: Any = object.__new__(Manifest)
    object.__setattr__(made, "digest", digest)
    object.__setattr__(made, "is_gated", is_gated)
    return made  # type: ignore[no-any-return]


def check(root: Path, digest: str = "ab", *, allow_missed: bool = False) -> list[str]:
    said: list[str] = []
    check_gate(root, manifest(digest), allow_missed=allow_missed, warn=said.append)
    return said


@pytest.mark.parametrize(
    ("side", "value", "is_met"),
    [
        ("at most", 0.9, True),
        ("at most", 1.0, True),
        ("at most", 1.1, False),
        ("at least", 1.1, True),
        ("at least", 1.0, True),
        ("at least", 0.9, False),
    ],
)
def test_a_figure_on_its_bound_is_met(side: Any, value: float, is_met: bool) -> None:
    assert Judgement("a", value, side, 1.0).is_met is is_met


def test_one_missed_figure_misses_the_gate() -> None:
    assert verdict_of((GOOD,)) == "met"
    assert verdict_of((GOOD, BAD)) == "missed"
    assert make_report(GOOD, BAD).missed == (BAD,)
    assert make_report(GOOD, BAD).missed_line == "agreement 0.5, at least 0.9"


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = make_report(GOOD, BAD)
    write_report(tmp_path, report)
    assert read_report(tmp_path) == report
    assert (tmp_path / PLACE).read_bytes() == encode(report)
    write_report(tmp_path, make_report(GOOD))
    assert read_report(tmp_path) == make_report(GOOD)
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["gate.json"]


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(encode(make_report(GOOD, BAD))) | fields).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "can't be read"),
        (b"[" * 100_000, "can't be read"),
        (b"\xff", "can't be read"),
        (b"{}", "missing required field"),
        (changed(schema=2), "has schema 2, this version of Forerun reads schema 1"),
        (changed(verdict="met"), "says met, which its figures contradict"),
        (changed(verdict="fine"), "can't be read"),
        (changed(judgements=[]), "which its figures contradict"),
    ],
)
def test_a_broken_report_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as refused:
        decode(data)
    assert "run builder verify --against again, or remove it" in str(refused.value)
    (tmp_path / "reports").mkdir()
    (tmp_path / PLACE).write_bytes(data)
    with pytest.raises(ArtifactError):
        check(tmp_path, allow_missed=True)


def test_a_report_that_can_not_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / PLACE).mkdir(parents=True)
    with pytest.raises(ArtifactError, match="can't be read: Is a directory"):
        check(tmp_path)
    (tmp_path / PLACE).rmdir()
    (tmp_path / PLACE).symlink_to("nowhere")
    with pytest.raises(ArtifactError, match="can't be read: No such file"):
        check(tmp_path)


def test_without_a_report_or_with_a_met_one_an_artifact_runs(tmp_path: Path) -> None:
    assert check(tmp_path) == []
    write_report(tmp_path, make_report(GOOD))
    assert check(tmp_path) == []


def test_an_artifact_that_missed_its_gate_is_refused_in_one_line(tmp_path: Path) -> None:
    write_report(tmp_path, make_report(GOOD, BAD))
    with pytest.raises(ArtifactError) as refused:
        check(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} missed its quality gate: agreement 0.5, at least 0.9; compile the model in another format, "
        "or add --allow-missed-gate to run it all the same"
    )


def test_it_runs_with_a_warning_where_that_is_allowed(tmp_path: Path) -> None:
    write_report(tmp_path, make_report(GOOD, BAD))
    (line,) = check(tmp_path, allow_missed=True)
    assert line.startswith(f"{tmp_path} missed its quality gate: agreement 0.5")


def test_a_report_of_another_artifact_does_not_count(tmp_path: Path) -> None:
    write_report(tmp_path, replace(make_report(BAD), digest="cd"))
    (line,) = check(tmp_path)
    assert "is about another artifact and does not count" in line


@pytest.mark.parametrize("other", [None, "another"])
def test_an_artifact_that_waits_for_its_gate_is_refused(tmp_path: Path, other: str | None) -> None:
    (tmp_path / "reports").mkdir()
    if other is not None:
        write_report(tmp_path, replace(make_report(GOOD), digest=other))
    waiting, said = manifest("ab", is_gated=True), list[str]()
    with pytest.raises(
        ArtifactError, match=r"was compiled with --gate and has not been judged; run builder verify"
    ):
        check_gate(tmp_path, waiting, allow_missed=False, warn=said.append)
    check_gate(tmp_path, waiting, allow_missed=True, warn=said.append)
    assert said[-1].endswith("it runs all the same, as --allow-missed-gate says")


def test_an_artifact_that_met_its_gate_waits_no_longer(tmp_path: Path) -> None:
    write_report(tmp_path, make_report(GOOD))
    check_gate(tmp_path, manifest("ab", is_gated=True), allow_missed=False, warn=pytest.fail)
