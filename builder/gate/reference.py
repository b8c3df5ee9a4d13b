"""The float32 reference: the same checkpoint, compiled in a folder that goes when it has been asked."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace

from builder import pipeline
from builder.artifact.staging import staged
from builder.artifact.store import Artifact
from builder.checkpoint.open import open_checkpoint
from builder.errors import UnsupportedError, UserError
from builder.limits import LimitOptions
from builder.pipeline import BuildPlan, CompileRequest, Progress

NUM_SEQS = 32
"""Also the rows of logits in a step."""
NUM_TOKENS = 128


@contextlib.contextmanager
def compiled_reference(
    model: str, judged: Artifact, *, max_seq_len: int, progress: Progress
) -> Iterator[Artifact]:
    """Compile a checkpoint in float32, in a temporary folder beside the artifact that is judged.

    Raises:
        UserError: the checkpoint can't be read or compiled, has other tokens than the artifact, or there is too little room.
        BuildError: the disk is full, or the engine does not run.
    """
    plan = _plan(
        model,
        LimitOptions(max_seq_len=max_seq_len, max_num_seqs=NUM_SEQS, max_num_tokens=NUM_TOKENS),
    )
    theirs, ours = plan.config.vocab_size, judged.manifest.model.vocab_size
    if theirs != ours:
        raise UserError(
            f"{model} has a vocabulary of {theirs}, {judged.root} one of {ours}: they are different models; "
            "name the checkpoint that the artifact was compiled from"
        )
    root = judged.root.resolve()
    free, needed = shutil.disk_usage(root.parent).free, plan.estimate.disk_bytes
    if free < needed:
        raise UserError(
            f"{root.parent} has {free >> 20} MiB free, the float32 reference of the gate needs {needed >> 20} while it is "
            f"held; free some space, or copy {root.name} to another disk and judge it there"
        )
    # A folder that a killed gate left is as large as the model in float32: the next gate removes it.
    with staged(root.with_name(f"{root.name}.reference")) as folder:
        yield pipeline.build(plan, folder / "float32", progress=progress)


def _plan(model: str, limits: LimitOptions) -> BuildPlan:
    """Plan for target cpu; for portable where the library of the first is missing, or it can't run the model.

    A checkpoint that is quantized counts as the float32 numbers that it stands for.
    """
    checkpoint = replace(open_checkpoint(model), quantized={}, kv=None)
    try:
        return pipeline.plan_checkpoint(checkpoint, CompileRequest(model, ("cpu",), limits=limits))
    except UnsupportedError:
        request = CompileRequest(model, ("portable",), limits=limits)
        return pipeline.plan_checkpoint(checkpoint, request)
