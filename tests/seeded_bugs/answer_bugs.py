"""Seeded bugs in what is answered: sampling, commit, admission, engine.

They are permanent. When code changes so that a patch no longer fits, renew it; never drop the mistake.
"""

from tests.seeded_bugs.copies import Patch

SAMPLING = {
    "the random number ignores the position": Patch(
        "sampling.sampler",
        "uniform(sequence.seed, 0, sequence.num_known)",
        "uniform(sequence.seed, 0, 0)",
    ),
    "the random number ignores the seed": Patch(
        "sampling.sampler", "uniform(sequence.seed, 0,", "uniform(0, 0,"
    ),
    "the random number is that of the row": Patch(
        "sampling.sampler",
        "for sequence in sequences]\n    return Draws",
        "for sequence in sequences[:1] * len(sequences)]\n    return Draws",
    ),
    "the sign of a seed is lost": Patch(
        "sampling.seed",
        'seed.to_bytes(_SEED_BYTES, "little", signed=True)',
        'abs(seed).to_bytes(_SEED_BYTES, "little")',
    ),
    "the temperature is not applied": Patch("sampling.temperature", " / scale[:, None])", ")"),
    "the normaliser is that of the first row": Patch(
        "sampling.temperature",
        "np.exp(logsumexp - largest / scale)",
        "np.exp(logsumexp[0] - largest / scale)",
    ),
    "top_k keeps one token more": Patch(
        "sampling.top_k", "cumulative_at(top_k - 1)", "cumulative_at(top_k)"
    ),
    "top_k does not normalise": Patch(
        "sampling.top_k", "np.where(is_cut, [mass, most], kept.mass)", "kept.mass"
    ),
    "top_k above the candidates keeps the candidates": Patch(
        "sampling.top_k", "(mass + num_missing * kept.next_weight) * _ROUNDING", "mass"
    ),
    "top_p drops the token that reaches the share": Patch(
        "sampling.top_p", "kept.cumulative_at(ranks)", "kept.cumulative_at(ranks - 1)"
    ),
    "top_p takes the share of 1 instead of the mass": Patch(
        "sampling.top_p", "wanted = top_p * kept.mass", "wanted = top_p * np.ones_like(kept.mass)"
    ),
    "top_p ignores tokens beyond the candidates": Patch(
        "sampling.top_p", "wanted[1] + kept.next_weight", "wanted[1]"
    ),
    "the draw is off by a thousandth": Patch(
        "sampling.kept",
        "self.cumulative <= wanted[:, :, None]",
        "self.cumulative + 1e-3 <= wanted[:, :, None]",
    ),
    "candidates always decide": Patch("sampling.draw", "(least == most) & ", "(least == least) | "),
    "a draw beyond the candidates takes the likeliest": Patch(
        "sampling.draw", " & (is_at_hand | (kept.num_tokens == kept.vocab_size))", ""
    ),
    "the rank is taken for the id": Patch(
        "sampling.sampler", "drawn = result.candidate_ids[rows, ranks]", "drawn = ranks"
    ),
    "ids go to the wrong rows": Patch(
        "sampling.sampler",
        "zip(rows.tolist(), drawn.tolist(), strict=True)",
        "enumerate(drawn.tolist())",
    ),
    "min_tokens allows the end one token early": Patch(
        "sampling.min_tokens", "sequence.num_generated <", "sequence.num_generated + 1 <"
    ),
    "min_tokens bans the end one token too long": Patch(
        "sampling.min_tokens", "sequence.num_generated <", "sequence.num_generated <="
    ),
    "min_tokens does not touch greedy rows": Patch(
        "sampling.min_tokens", " or int(result.argmax[row]) in ids", ""
    ),
    "min_tokens keeps the old normaliser": Patch(
        "sampling.min_tokens",
        "logsumexp=_replaced(result.logsumexp, rows, anew.logsumexp)",
        "logsumexp=result.logsumexp",
    ),
    "min_tokens forgets the ban in full rows": Patch(
        "sampling.min_tokens",
        "edited[row] if row in edited else result.full_row(row)",
        "result.full_row(row)",
    ),
}

COMMIT = {
    "computed tokens are not counted": Patch(
        "commit", "sequence.num_computed += num_tokens", "pass"
    ),
    "one computed token is counted for a chunk": Patch(
        "commit", "num_computed += num_tokens", "num_computed += 1"
    ),
    "an answer gets one token too many": Patch(
        "commit", "sequence.num_known + 1 >=", "sequence.num_known >="
    ),
    "an answer gets one token too few": Patch(
        "commit", "sequence.num_known + 1 >=", "sequence.num_known + 2 >="
    ),
    "an end id does not end the answer": Patch(
        "commit", "if token_id not in sequence.stopping_ids", "if stop is not None"
    ),
    "text that was held back is lost": Patch(
        "commit",
        "return text + text_stage.finish(sequence.request.request_id), reason, stop",
        "text_stage.finish(sequence.request.request_id)\n    return text, reason, stop",
    ),
    "the text stage never hears of the end": Patch(
        "commit",
        "return text + text_stage.finish(sequence.request.request_id), reason, stop",
        "return text, reason, stop",
    ),
    "the token that ends an answer is not told": Patch(
        "commit", "token_ids=(token_id,)", "token_ids=(token_id,)[: reason is None]"
    ),
}

ENGINE = {
    "a cancelled request goes on": Patch(
        "engine", "        self._forget(delta)\n        return delta\n", "        return delta\n"
    ),
    "a finished sequence stays scheduled": Patch(
        "engine",
        "self.scheduler.remove(self._sequences.pop(delta.request_id))",
        "self._sequences.pop(delta.request_id)",
    ),
    "a failure ends only the first sequence": Patch(
        "engine",
        "for sequence in self.scheduler.running\n",
        "for sequence in self.scheduler.running[:1]\n",
    ),
    "a failure ends waiting requests": Patch(
        "engine",
        "for sequence in self.scheduler.running\n",
        "for sequence in [*self.scheduler.running, *self.scheduler.waiting]\n",
    ),
    "seed 0 is no seed": Patch(
        "engine",
        "self._draw_seed() if params.seed is None else params.seed",
        "params.seed or self._draw_seed()",
    ),
    "ignore_eos is ignored": Patch(
        "admission",
        "own if params.ignore_eos else end_token_ids | own",
        "end_token_ids | own",
    ),
    "stop token ids replace the end ids": Patch(
        "admission", "else end_token_ids | own", "else own or end_token_ids"
    ),
    "max_tokens is not counted from the prompt's end": Patch(
        "admission",
        "if max_tokens is None else least\n",
        "if max_tokens is None else max(max_tokens, num_prompt + 1)\n",
    ),
    "an answer without max_tokens ends one token early": Patch(
        "admission", "num_blocks * pool.block_size + 1", "num_blocks * pool.block_size"
    ),
}

ANSWER_BUGS = SAMPLING | COMMIT | ENGINE
