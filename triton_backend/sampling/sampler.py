"""The chain from logits to token ids: bans, temperature, top-k, top-p, draw.

It works on the N candidates that the executor gives per row, and goes to the full row only where they
can't decide. Both ways sum the same weights in the same order, so both give the same id; and no row's id
depends on the rows beside it.
"""

from dataclasses import dataclass

import numpy as np

from builder.artifact.step import Float32, RowAsks, StepResult
from builder.targets.executor import result_from_rows
from triton_backend.sampling.draw import draw
from triton_backend.sampling.kept import Bool, Float64, Int64
from triton_backend.sampling.min_tokens import banned_ids, without_banned
from triton_backend.sampling.seed import uniform
from triton_backend.sampling.temperature import weigh
from triton_backend.sampling.top_k import keep_top_k
from triton_backend.sampling.top_p import keep_top_p
from triton_backend.sequence import Sequence

WIDTHS = (256, 2048)
"""Candidates tried before a whole row is sorted: 0.3 and 1.2 ms instead of 6.7, for a row of 49,152."""


@dataclass(frozen=True, slots=True)
class Draws:
    """R rows to draw from: the normaliser and the parameters of each, all `[R]`."""

    temperatures: Float32
    logsumexp: Float32
    top_k: Int64
    top_p: Float64
    uniforms: Float64

    def one(self, row: int) -> "Draws":
        """Give a single row."""
        only = slice(row, row + 1)
        return Draws(
            temperatures=self.temperatures[only],
            logsumexp=self.logsumexp[only],
            top_k=self.top_k[only],
            top_p=self.top_p[only],
            uniforms=self.uniforms[only],
        )


class Sampler:
    """Picks the next token of each sequence that has a logit row. It keeps nothing between steps."""

    def __init__(self, *, vocab_size: int, num_candidates: int) -> None:
        self._vocab_size = vocab_size
        self._num_candidates = num_candidates

    def asks(self, sequences: list[Sequence]) -> RowAsks:
        """Say what is needed of the rows of `sequences`: candidates only if some row is drawn."""
        every = [sequence.request.params for sequence in sequences]
        temperatures = [0.0 if params.is_greedy else params.temperature for params in every]
        return RowAsks(
            num_candidates=self._num_candidates if any(temperatures) else 0,
            temperatures=np.array(temperatures, np.float32),
        )

    def sample(
        self, sequences: list[Sequence], asks: RowAsks, result: StepResult
    ) -> list[int | None]:
        """Give one id per row; None for a row whose logits are not finite numbers."""
        banned = banned_ids(sequences)
        if banned:
            result = without_banned(result, asks, banned)
        ids: list[int | None] = [
            None if token_id < 0 else token_id for token_id in result.argmax.tolist()
        ]
        if not asks.num_candidates:
            return ids

        rows = np.flatnonzero(asks.temperatures)
        is_number = np.isfinite(result.logsumexp[rows])
        for row in rows[~is_number].tolist():
            ids[row] = None
        rows = rows[is_number]
        draws = _draws([sequences[row] for row in rows.tolist()], rows, asks, result)
        ranks, is_decided = self._decide(draws, result.candidate_logits[rows])
        drawn = result.candidate_ids[rows, ranks]
        for row, token_id in zip(rows.tolist(), drawn.tolist(), strict=True):
            ids[row] = token_id
        for index in np.flatnonzero(~is_decided).tolist():
            row = int(rows[index])
            ids[row] = self._search(draws.one(index), result.full_row(row))
        return ids

    def _decide(self, draws: Draws, logits: Float32) -> tuple[Int64, Bool]:
        """Give the rank `[R]` drawn among logits `[R, M]`, largest first, and whether they decide it."""
        kept = weigh(logits, draws.temperatures, draws.logsumexp, vocab_size=self._vocab_size)
        if draws.top_k.any():
            kept = keep_top_k(kept, draws.top_k)
        if (draws.top_p < 1.0).any():
            kept = keep_top_p(kept, draws.top_p)
        return draw(kept, draws.uniforms)

    def _search(self, one: Draws, logits: Float32) -> int:
        """Give the id drawn from a full row `[V]`, through as many of its largest as needed."""
        for width in (*WIDTHS, self._vocab_size):
            largest = result_from_rows(logits[None], RowAsks(width, np.zeros(1, np.float32)))
            ranks, is_decided = self._decide(one, largest.candidate_logits)
            if is_decided[0]:
                break
        return int(largest.candidate_ids[0, ranks[0]])


def _draws(sequences: list[Sequence], rows: Int64, asks: RowAsks, result: StepResult) -> Draws:
    """Collect what the draws of some rows need; `sequences` are those of the rows."""
    every = [sequence.request.params for sequence in sequences]
    # The first choice, and the only one so far.
    uniforms = [uniform(sequence.seed, 0, sequence.num_known) for sequence in sequences]
    return Draws(
        temperatures=asks.temperatures[rows],
        logsumexp=result.logsumexp[rows],
        top_k=np.array([params.top_k for params in every], np.int64),
        top_p=np.array([params.top_p for params in every], np.float64),
        uniforms=np.array(uniforms, np.float64),
    )
