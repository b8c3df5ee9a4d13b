"""Commits of tests: one sequence, one step, one token."""

from triton_backend.commit import commit
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.request import Delta
from triton_backend.rows import Drawn
from triton_backend.sequence import Sequence
from triton_backend.text import TextStage


def started(stage: TextStage, *sequences: Sequence) -> None:
    for sequence in sequences:
        stage.start(sequence.answer_id, sequence.request)


def commit_one(
    sequence: Sequence, token_id: Drawn, stage: TextStage, *, count: int | None = None
) -> Delta:
    """Commit a step that computes all that is pending of a sequence, or `count` tokens."""
    share = Scheduled(sequence, sequence.num_pending if count is None else count, 1)
    (delta,) = commit(StepPlan((share,), ()), [token_id], text_stage=stage)
    return delta
