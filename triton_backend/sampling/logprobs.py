"""Log-probabilities of sampled tokens: of the model itself, at temperature 1, before bans and cuts.

They come from the full row in float64, so they depend on its logits alone; rows that do not ask cost nothing.
"""

import numpy as np

from builder.artifact.step import Float32, RowAsks, StepResult
from builder.targets.executor import result_from_rows
from triton_backend.request import TokenLogprobs
from triton_backend.rows import Drawn, LogitRow


def asked_logprobs(
    rows: list[LogitRow], token_ids: list[Drawn], result: StepResult
) -> dict[int, TokenLogprobs]:
    """Give, by row, the log-probabilities of the rows that ask for them.

    For a row that was drawn they are of its entry in `token_ids` (nothing where none was drawn), for one in
    a prompt of the token that follows there. `result` is the executor's own, before anything was edited.
    """
    told = {}
    for place, (row, drawn) in enumerate(zip(rows, token_ids, strict=True)):
        params = row.sequence.request.params
        num_top = params.prompt_logprobs if row.num_behind else params.logprobs
        token_id = row.next_token_id if row.num_behind else drawn
        if num_top is not None and isinstance(token_id, int):
            told[place] = logprobs_of(result.full_row(place), token_id, num_top)
    return told


def logprobs_of(row: Float32, token_id: int, num_top: int) -> TokenLogprobs:
    """Tell how likely `token_id` is by the logits `row` `[V]`, and the `num_top` likeliest ids."""
    chosen, peak = row[token_id], row.max()
    with np.errstate(invalid="ignore"):  # infinite less infinite: NaN, as it should be
        shifted = row.astype(np.float64) - peak
        log_mass = np.log(np.exp(shifted).sum())
    asks = RowAsks(num_top, np.zeros(1, np.float32))
    (top_ids,) = result_from_rows(row[None], asks).candidate_ids
    rank = 1 + np.count_nonzero(row > chosen) + np.count_nonzero(row[:token_id] == chosen)
    return TokenLogprobs(
        logprob=float(shifted[token_id] - log_mass),
        rank=int(rank),
        top_ids=tuple(top_ids.tolist()),
        top_logprobs=tuple((shifted[top_ids] - log_mass).tolist()),
    )
