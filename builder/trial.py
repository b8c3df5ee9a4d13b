"""A first step of an engine that was just built: what can't run, or gives no numbers, is never published."""

from dataclasses import replace

import numpy as np

from builder import targets
from builder.artifact.step import RowAsks, StepTensors
from builder.artifact.store import Artifact
from builder.errors import BuildError


def try_engine(artifact: Artifact, target: str) -> None:
    """Load a fresh engine with the smallest pool, and run one step of it.

    Raises:
        BuildError: its logits are not finite numbers.
    """
    small = replace(artifact.manifest, limits=replace(artifact.manifest.limits, num_blocks=2))
    executor = targets.open_executor(Artifact(artifact.root, small), target=target)
    block_size = artifact.manifest.kv.block_size
    step = StepTensors(
        token_ids=np.zeros(1, np.int32),
        positions=np.zeros(1, np.int32),
        query_start=np.array([0, 1], np.int32),
        seq_lens=np.ones(1, np.int32),
        block_tables=np.ones((1, 1, 1), np.int32),
        slot_mapping=np.full((1, 1), block_size, np.int32),
        logit_rows=np.zeros(1, np.int32),
        block_copies=np.zeros((0, 3), np.int32),
    )
    try:
        result = executor.execute(step, RowAsks(0, np.zeros(1, np.float32)))
        if not np.isfinite(result.full_row(0)).all():
            raise BuildError(
                f"the {target} engine gives logits that are not finite; is the checkpoint damaged?"
            )
    finally:
        executor.close()
