"""The chain from logits to token ids: each link works only for the rows that ask for it, in this order.

1. on logits: logit bias, processors, penalties, and then the bans: bad words, minimum length, constraint;
2. on the likeliest tokens of a row that is drawn: temperature, top-k, min-p, top-p, draw.

It works on the N candidates that the executor gives per row, and goes to the full row only where they
can't decide. Both ways sum the same weights in the same order, so both give the same id; and no row's id
depends on the rows beside it.
"""

from dataclasses import dataclass, replace

import numpy as np

from builder.artifact.step import Float32, RowAsks, StepResult
from builder.targets.executor import result_from_rows
from triton_backend.admission import check_token_ids
from triton_backend.request import SamplingParams
from triton_backend.rows import Drawn, LogitRow, NoToken
from triton_backend.sampling.bad_words import bad_words_of
from triton_backend.sampling.constraint import mask_of
from triton_backend.sampling.draw import draw
from triton_backend.sampling.edits import Link, apply_edits, edits_of
from triton_backend.sampling.kept import Bool, Float64, Int64
from triton_backend.sampling.logit_bias import biases_of
from triton_backend.sampling.min_p import keep_min_p
from triton_backend.sampling.min_tokens import min_tokens_of
from triton_backend.sampling.penalties import penalties_of
from triton_backend.sampling.processors import Processors
from triton_backend.sampling.seed import uniform
from triton_backend.sampling.temperature import weigh
from triton_backend.sampling.top_k import keep_top_k
from triton_backend.sampling.top_p import keep_top_p

WIDTHS = (256, 1024, 8192)
"""Candidates tried before a whole row is ranked: 0.04, 0.1 and 0.5 ms on target cpu instead of 0.9, for 49,152 of them."""
AT_ONCE = 1 << 15
"""Candidates of all rows that are weighed together: they stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Draws:
    """R rows to draw from: the parameters of each, all `[R]`, and bounds of the normaliser, `[2, R]`."""

    temperatures: Float32
    logsumexp: Float64
    top_k: Int64
    min_p: Float64
    top_p: Float64
    uniforms: Float64

    def some(self, rows: Int64) -> "Draws":
        """Give some of the rows."""
        return Draws(
            temperatures=self.temperatures[rows],
            logsumexp=self.logsumexp[:, rows],
            top_k=self.top_k[rows],
            min_p=self.min_p[rows],
            top_p=self.top_p[rows],
            uniforms=self.uniforms[rows],
        )


class Sampler:
    """Picks the next token of each sequence that has a logit row. It keeps nothing between steps."""

    def __init__(
        self, *, vocab_size: int, num_candidates: int, processors: Processors | None = None
    ) -> None:
        """Take V and N; the logits processors are those installed, unless given."""
        self._vocab_size = vocab_size
        self._num_candidates = num_candidates
        self._processors = Processors() if processors is None else processors
        self._links: tuple[Link, ...] = (
            biases_of,
            self._processors.processing_of,
            penalties_of,
            bad_words_of,
            min_tokens_of,
            mask_of,
        )

    def check(self, params: SamplingParams) -> None:
        """Refuse at submit what no row could be sampled with.

        Raises:
            RequestError: an id is not in the vocabulary, or a processor is not installed.
        """
        biased = tuple(token_id for token_id, _ in params.logit_bias)
        check_token_ids("logit_bias", biased, self._vocab_size)
        for index, word in enumerate(params.bad_words):
            check_token_ids(f"bad_words[{index}]", word, self._vocab_size)
        self._processors.load(params.logits_processors)

    def asks(self, rows: list[LogitRow]) -> RowAsks:
        """Say what is needed of the logits of `rows`: candidates only if some row is drawn."""
        temperatures = [_temperature(row) for row in rows]
        return RowAsks(
            num_candidates=self._num_candidates if any(temperatures) else 0,
            temperatures=np.array(temperatures, np.float32),
        )

    def sample(self, rows: list[LogitRow], asks: RowAsks, result: StepResult) -> list[Drawn]:
        """Give one id per row, or why nothing can be drawn.

        Rows whose token is known already need no draw, and their entry means nothing.
        """
        edits = edits_of(rows, self._links)
        own = result
        result, slack = apply_edits(own, asks, edits)
        ids: list[Drawn] = [
            _why_none(place, own, result) if token_id < 0 else token_id
            for place, token_id in enumerate(result.argmax.tolist())
        ]
        if not asks.num_candidates:
            return ids

        places = np.flatnonzero(asks.temperatures)
        is_number = np.isfinite(result.logsumexp[places])
        for place in places[~is_number].tolist():
            ids[place] = _why_none(place, own, result)
        places = places[is_number]
        draws = _draws([rows[place] for place in places.tolist()], places, asks, result, slack)
        ranks, is_decided = self._decide(draws, result.candidate_logits[places])
        drawn = result.candidate_ids[places, ranks]
        for place, token_id in zip(places.tolist(), drawn.tolist(), strict=True):
            ids[place] = token_id
        still = np.flatnonzero(~is_decided)
        if len(still):
            undecided = places[still].tolist()
            found = self._search(
                _summed_anew(draws.some(still), undecided, result), undecided, result
            )
            for place, token_id in zip(undecided, found.tolist(), strict=True):
                ids[place] = token_id
        return ids

    def _decide(self, draws: Draws, logits: Float32) -> tuple[Int64, Bool]:
        """Give the rank `[R]` drawn among logits `[R, M]`, largest first, and whether they decide it."""
        kept = weigh(logits, draws.temperatures, draws.logsumexp, vocab_size=self._vocab_size)
        if draws.top_k.any():
            kept = keep_top_k(kept, draws.top_k)
        if draws.min_p.any():
            kept = keep_min_p(kept, draws.min_p)
        if (draws.top_p < 1.0).any():
            kept = keep_top_p(kept, draws.top_p)
        return draw(kept, draws.uniforms)

    def _search(self, draws: Draws, places: list[int], result: StepResult) -> Int64:
        """Give the ids `[R]` drawn at `places` of a step, through as many of their likeliest as needed."""
        found, still = np.zeros(len(places), np.int64), np.arange(len(places))
        widths = (width for width in WIDTHS if width < self._vocab_size)
        for width in (*widths, self._vocab_size):
            undecided = [still[:0]]
            for some in np.array_split(still, -(-len(still) * width // AT_ONCE) or 1):
                ids, logits = result.likeliest([places[index] for index in some.tolist()], width)
                ranks, is_decided = self._decide(draws.some(some), logits)
                found[some] = ids[np.arange(len(some)), ranks]
                undecided.append(some[~is_decided])
            still = np.concatenate(undecided)
            if not len(still):
                break
        return found


def _summed_anew(draws: Draws, places: list[int], result: StepResult) -> Draws:
    """Take the log-sum-exp of full rows where only bounds of it are known."""
    sums = draws.logsumexp.copy()
    for index in np.flatnonzero(sums[0] != sums[1]).tolist():
        asks = RowAsks(0, draws.temperatures[index : index + 1])
        row = result.full_row(places[index])
        sums[:, index] = result_from_rows(row[None], asks).logsumexp
    return replace(draws, logsumexp=sums)


def _why_none(place: int, own: StepResult, edited: StepResult) -> NoToken:
    """Tell why a row has no largest logit; `own` is the executor's answer, `edited` the one after edits."""
    if own.argmax[place] < 0:
        return NoToken.BROKEN
    largest = edited.full_row(place).max()
    if largest == -np.inf:
        return NoToken.NOTHING_LEFT
    return NoToken.BROKEN if np.isfinite(largest) else NoToken.BROKEN_BY_PROCESSOR


def _temperature(row: LogitRow) -> float:
    """Give the temperature that a row is drawn at; 0 if it is greedy, or not drawn at all."""
    params = row.sequence.request.params
    return 0.0 if params.is_greedy or row.num_behind else params.temperature


def _draws(
    rows: list[LogitRow], places: Int64, asks: RowAsks, result: StepResult, slack: Float64
) -> Draws:
    """Collect what the draws of some rows need; `places` are theirs in the step."""
    every = [row.sequence.request.params for row in rows]
    uniforms = [uniform(row.sequence.seed, row.sequence.choice, row.num_known) for row in rows]
    return Draws(
        temperatures=asks.temperatures[places],
        logsumexp=result.logsumexp[places] + np.array([[-1.0], [1.0]]) * slack[places],
        top_k=np.array([params.top_k for params in every], np.int64),
        min_p=np.array([params.min_p for params in every], np.float64),
        top_p=np.array([params.top_p for params in every], np.float64),
        uniforms=np.array(uniforms, np.float64),
    )
