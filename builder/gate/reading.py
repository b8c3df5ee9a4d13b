"""Engines read tokens: each is given the true ones before it, and its whole rows of logits are looked at.

Rows come a step at a time and are gone with the next, so that no text is too long.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from builder.artifact.step import Float32, Int32, RowAsks, StepTensors
from builder.errors import EngineError
from builder.gate.figures import Figures, TokenFigures, compare, summed
from builder.targets.executor import Executor


def cut(ids: Sequence[int], prefix: Sequence[int], length: int) -> list[Int32]:
    """Cut ids into chunks of at most `length` tokens, each behind the model's own `prefix`.

    A rest that would leave no token to predict goes.
    """
    step = length - len(prefix)
    parts = (ids[first : first + step] for first in range(0, len(ids), step))
    chunks = (np.array([*prefix, *part], np.int32) for part in parts)
    return [chunk for chunk in chunks if len(chunk) > 1]


def rows_per_step(*executors: Executor) -> int:
    """Give how many rows of logits every one of the engines gives in a step."""
    return min(min(each.limits.max_logit_rows, each.limits.max_num_tokens) for each in executors)


def read_rows(executor: Executor, chunk: Int32, num_rows: int) -> Iterator[Float32]:
    """Give the logits of all tokens of a chunk, in order, as `[num_rows, V]`; the last ones may be fewer.

    The chunk lies in the first blocks of the engine's pool, whatever was there before.

    Raises:
        EngineError: the engine failed, or gave something that is no finite number.
    """
    size = executor.kv.block_size
    blocks = 1 + np.arange(-(-len(chunk) // size), dtype=np.int32)
    groups = len(executor.kv.groups)
    for first in range(0, len(chunk), num_rows):
        places = np.arange(first, min(first + num_rows, len(chunk)), dtype=np.int32)
        num = len(places)
        step = StepTensors(
            token_ids=chunk[places],
            positions=places,
            query_start=np.array([0, num], np.int32),
            seq_lens=np.array([first + num], np.int32),
            block_tables=np.tile(blocks, (groups, 1, 1)),
            slot_mapping=np.tile(blocks[places // size] * size + places % size, (groups, 1)),
            logit_rows=np.arange(num, dtype=np.int32),
            block_copies=np.zeros((0, 3), np.int32),
        )
        result = executor.execute(step, RowAsks(0, np.zeros(num, np.float32)))
        rows = np.stack([result.full_row(row) for row in range(num)])
        if not np.isfinite(rows).all():
            raise EngineError(
                "the engine gives logits that are not finite; compile the model again"
            )
        yield rows


def compare_engines(
    reference: Executor,
    given: Executor,
    chunks: Sequence[Int32],
    advance: Callable[[int], None],
) -> Figures:
    """Have both engines read all chunks side by side; `advance` hears of tokens read.

    Raises:
        EngineError: an engine failed.
    """
    return summed(_compared(reference, given, chunks, advance))


def _compared(
    reference: Executor,
    given: Executor,
    chunks: Sequence[Int32],
    advance: Callable[[int], None],
) -> Iterator[TokenFigures]:
    num_rows = rows_per_step(reference, given)
    for chunk in chunks:
        pairs = zip(
            read_rows(reference, chunk, num_rows), read_rows(given, chunk, num_rows), strict=True
        )
        for place, (theirs, ours) in enumerate(pairs):
            coming = chunk[place * num_rows + 1 :][: len(ours)]
            advance(len(ours))
            if num := len(coming):  # nobody knows what comes behind the last token
                yield compare(theirs[:num], ours[:num], coming)
