"""Figures held against thresholds."""

from builder.artifact.gate_report import AnswerCounts, GateReport, Judgement
from builder.errors import GateError
from builder.gate.figures import Figures
from builder.gate.thresholds import Thresholds


def judgements_of(
    figures: Figures, answers: AnswerCounts, thresholds: Thresholds
) -> tuple[Judgement, ...]:
    """Put each figure beside its threshold."""
    ratio, asked = figures.perplexity_ratio, answers.num_asked
    equal = answers.num_equal / asked
    lost = max(answers.num_right_of_reference - answers.num_right, 0) / asked
    return (
        Judgement("kl_mean", figures.kl_mean, "at most", thresholds.max_kl_mean),
        Judgement("kl_p99", figures.kl_p99, "at most", thresholds.max_kl_p99),
        Judgement("agreement", figures.agreement, "at least", thresholds.min_agreement),
        Judgement("perplexity_ratio", ratio, "at most", thresholds.max_perplexity_ratio),
        Judgement("answers_equal", equal, "at least", thresholds.min_answers_equal),
        Judgement("answers_lost", lost, "at most", thresholds.max_answers_lost),
    )


def raise_missed(report: GateReport) -> None:
    """Fail where a threshold was missed.

    Raises:
        GateError: names the figures that missed theirs.
    """
    if report.verdict == "missed":
        raise GateError(f"the quality gate was missed: {report.missed_line}")
