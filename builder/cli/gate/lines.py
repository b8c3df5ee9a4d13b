"""What people are shown of a quality gate."""

from pathlib import Path

from builder.artifact.gate_report import GateReport, Judgement, read_report
from builder.artifact.manifest import Manifest
from builder.cli.display import Rows
from builder.errors import ArtifactError

LABELS = {
    "kl_mean": "KL divergence, mean",
    "kl_p99": "KL divergence, 99 %",
    "agreement": "top-1 agreement",
    "perplexity_ratio": "perplexity, times",
    "answers_equal": "answers equal",
    "answers_lost": "answers lost",
}


def report_rows(report: GateReport) -> Rows:
    """Give the table of a report: what was done, each figure beside its threshold, and the verdict."""
    text, answers = report.text, report.answers
    return [
        ("engine", f"{report.target}: {report.precision}, keys and values {report.kv}"),
        ("reference", f"{report.reference.name} in float32 on {report.reference_target}"),
        ("text", f"{text.name}: {text.num_tokens} tokens in {text.num_chunks} chunks"),
        (
            "perplexity",
            f"{report.perplexity:.4f}, the reference's {report.reference_perplexity:.4f}",
        ),
        (
            "answers right",
            f"{answers.num_right} of {answers.num_asked}, the reference's {answers.num_right_of_reference}",
        ),
        *((LABELS.get(each.name, each.name), figure_line(each)) for each in report.judgements),
        ("verdict", report.verdict),
    ]


def figure_line(judgement: Judgement) -> str:
    """Give a figure beside its threshold."""
    verdict = "met" if judgement.is_met else "MISSED"
    return f"{judgement.value:.5f}, {judgement.side} {judgement.threshold:g}: {verdict}"


def gate_line(root: Path, manifest: Manifest) -> str:
    """Say in a line how the artifact at `root` stands with its quality gate."""
    try:
        report = read_report(root)
    except ArtifactError as error:
        return f"not readable: {error}"
    waits = "; it was compiled with --gate and waits for it" if manifest.is_gated else ""
    if report is None:
        return f"none{waits}"
    if report.digest != manifest.digest:
        return f"of another artifact, does not count{waits}"
    against = f"{report.verdict}, {report.target} against {report.reference.name}"
    figures = report.missed or report.judgements
    return f"{against}: {'; '.join(map(str, figures))}"
