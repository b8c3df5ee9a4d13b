"""Seeded bugs in what is answered: sampling, commit, admission, engine.

They are permanent. When code changes so that a patch no longer fits, renew it; never drop the mistake.
"""

from tests.seeded_bugs.copies import Patch

SAMPLING = {
    "the random number ignores the position": Patch(
        "sampling.sampler",
        "row.sequence.choice, row.num_known)",
        "row.sequence.choice, 0)",
    ),
    "the random number ignores the seed": Patch(
        "sampling.sampler", "uniform(row.sequence.seed,", "uniform(0,"
    ),
    "the random number is that of the row": Patch(
        "sampling.sampler",
        "for row in rows]\n    return Draws",
        "for row in rows[:1] * len(rows)]\n    return Draws",
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
        "np.exp(logsumexp[:, :1] - largest / scale)",
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
        "sampling.sampler", "drawn = result.candidate_ids[places, ranks]", "drawn = ranks"
    ),
    "ids go to the wrong rows": Patch(
        "sampling.sampler",
        "zip(places.tolist(), drawn.tolist(), strict=True)",
        "enumerate(drawn.tolist())",
    ),
    "all choices draw the same": Patch(
        "sampling.sampler", "row.sequence.choice, row.num_known)", "0, row.num_known)"
    ),
    "drafted rows draw with the number of the last known token": Patch(
        "sampling.sampler", "row.num_known) for row", "row.sequence.num_known) for row"
    ),
    "min_p keeps one token more": Patch(
        "sampling.min_p", "kept.cumulative_at(count - 1)", "kept.cumulative_at(count)"
    ),
    "min_p drops the token that just passes": Patch(
        "sampling.min_p", "kept.weights >= min_p", "kept.weights > min_p"
    ),
    "min_p takes the candidates for all": Patch(
        "sampling.min_p", "np.where(is_open, kept.mass[1], ", "np.where(False, kept.mass[1], "
    ),
    "min_p comes after top_p": Patch(
        "sampling.sampler",
        "            kept = keep_top_p(kept, draws.top_p)\n",
        "            kept = keep_min_p(keep_top_p(weigh(logits, draws.temperatures, draws.logsumexp,"
        " vocab_size=self._vocab_size), draws.top_p), draws.min_p)\n",
    ),
}

EDITS = {
    "min_tokens allows the end one token early": Patch(
        "sampling.min_tokens", "row.num_generated >=", "row.num_generated + 1 >="
    ),
    "min_tokens bans the end one token too long": Patch(
        "sampling.min_tokens", "row.num_generated >=", "row.num_generated >"
    ),
    "bans do not touch greedy rows": Patch(
        "sampling.edits", " or _may_move(of_row, int(result.argmax[place]))", ""
    ),
    "edited rows keep the old normaliser": Patch(
        "sampling.edits",
        "logsumexp[place], slack[place] = told or (anew.logsumexp[0], 0.0)",
        "pass",
    ),
    "edits are forgotten in full rows": Patch(
        "sampling.edits",
        "_edited(result.full_row(place), edits.get(place, ()))",
        "result.full_row(place)",
    ),
    "edits are forgotten in further candidates": Patch(
        "sampling.edits", " if place in edits]", " if place in ()]"
    ),
    "edits change the executor's own rows": Patch(
        "sampling.edits",
        "logits = row.copy()",
        "logits = row",
    ),
    "a correction forgets what edits added": Patch(
        "sampling.correction", "1.0 - taken + added", "1.0 - taken"
    ),
    "a correction ignores the temperature": Patch(
        "sampling.correction", "rows / temperature - logsumexp", "rows - logsumexp"
    ),
    "one edit a row is applied": Patch(
        "sampling.edits", "for edit in edits:", "for edit in edits[:1]:"
    ),
    "a raised id does not move the arg-max of another": Patch(
        "sampling.logit_bias", "else (bias <= 0)", "else True"
    ),
    "the least bias is only a bias": Patch(
        "sampling.logit_bias", "added[added == -MAX_BIAS] = -np.inf", "pass"
    ),
    "repetition counts the answer alone": Patch(
        "sampling.penalties",
        "np.concatenate((self.occurrences.prompt_ids, ids))",
        "ids",
    ),
    "repetition divides negative logits too": Patch(
        "sampling.penalties", "values * self.repetition", "values / self.repetition"
    ),
    "presence counts the prompt": Patch(
        "occurrences", "self._num_read = num_prompt", "self._num_read = 0"
    ),
    "frequency counts once": Patch(
        "sampling.penalties", "self.frequency * counts", "self.frequency"
    ),
    "a bad word may begin in the prompt": Patch(
        "sampling.bad_words",
        "min(row.num_generated, MAX_BAD_WORD_TOKENS - 1)",
        "MAX_BAD_WORD_TOKENS - 1",
    ),
    "the first id of a bad word is banned": Patch(
        "sampling.bad_words", "{word[-1] for", "{word[0] for"
    ),
    "the likeliest tokens' logits are told for their log-probabilities": Patch(
        "sampling.logprobs", "(shifted[top_ids] - log_mass)", "shifted[top_ids]"
    ),
    "equal logits share a rank": Patch(
        "sampling.logprobs", " + np.count_nonzero(row[:token_id] == chosen)", ""
    ),
    "log-probabilities of a prompt tell of the token before": Patch(
        "rows", "token_ids[self.num_known]", "token_ids[self.num_known - 1]"
    ),
}

COMMIT = {
    "computed tokens are not counted": Patch(
        "commit", "share.sequence.num_computed += share.num_known_tokens", "pass"
    ),
    "one computed token is counted for a chunk": Patch(
        "commit", "num_computed += share.num_known_tokens", "num_computed += 1"
    ),
    "drafts count as computed whether they hold or not": Patch(
        "commit", "num_computed += share.num_known_tokens", "num_computed += share.num_tokens"
    ),
    "accepted drafts are computed again": Patch(
        "commit", "        sequence.num_computed += 1\n", "        pass\n"
    ),
    "a draft that fails is taken for the token": Patch(
        "commit", "or token_id != guess:", "or guess is None:"
    ),
    "a run goes on after its end": Patch(
        "commit", "if run.reason is not None or token_id", "if token_id"
    ),
    "log-probabilities of a prompt are told again after a preemption": Patch(
        "commit", "is_first and run.token_ids and", "run.token_ids and"
    ),
    "a mask hears nothing": Patch("commit", "sequence.mask.accept(token_id)", "pass"),
    "the text of an id that ends is always told": Patch(
        "commit", "if not is_stopping or sequence.request.params.include_stop:", "if True:"
    ),
    "an answer gets one token too many": Patch(
        "commit", "sequence.num_known + 1 >=", "sequence.num_known >="
    ),
    "an answer gets one token too few": Patch(
        "commit", "sequence.num_known + 1 >=", "sequence.num_known + 2 >="
    ),
    "an end id does not end the answer": Patch(
        "commit", "if is_stopping or stop is not None:", "if stop is not None:"
    ),
    "text that was held back is lost": Patch(
        "commit", "run.text += text_stage.finish(answer_id)", "text_stage.finish(answer_id)"
    ),
    "the text stage never hears of the end": Patch(
        "commit", "    run.text += text_stage.finish(answer_id)\n", ""
    ),
    "the token that ends an answer is not told": Patch(
        "commit",
        "        tuple(run.token_ids),",
        "        tuple(run.token_ids)[: run.reason is None],",
    ),
}

ENGINE = {
    "cancel ends the first choice alone": Patch(
        "engine",
        "siblings = list(self._requests.get(request_id, ()))",
        "siblings = list(self._requests.get(request_id, ()))[:1]",
    ),
    "cancel ends every other choice": Patch(
        "engine",
        "siblings = list(self._requests.get(request_id, ()))",
        "siblings = self._requests.get(request_id, ())",
    ),
    "a finished sequence stays scheduled": Patch(
        "engine", "        self.scheduler.remove(sequence)\n", ""
    ),
    "a failure ends only the first sequence": Patch(
        "engine",
        "for sequence in self.scheduler.discard()\n",
        "for sequence in self.scheduler.discard()[:1]\n",
    ),
    "a failure ends waiting requests": Patch(
        "engine",
        "for sequence in self.scheduler.discard()\n",
        "for sequence in [s for s in self.scheduler.discard()] + []\n"
        "            + [s for each in self._requests.values() for s in each if not s.num_admissions]\n",
    ),
    "the first choice that ends is the last": Patch(
        "engine", "        if sequence.siblings:\n            return delta\n", ""
    ),
    "deadlines count for those who run alone": Patch(
        "engine", "if until <= now]", "if until <= now and sequence.block_table]"
    ),
    "deadlines come one step late": Patch("engine", "if until <= now]", "if until + 1 <= now]"),
    "a passed deadline is forgotten": Patch(
        "engine", "        late = self._end_late()\n", "        late: list[Delta] = []\n"
    ),
    "an idle engine keeps what is cached for ever": Patch(
        "engine",
        "            self.scheduler.cache.expire()\n            return late\n",
        "            return late\n",
    ),
    "drafts are judged one too low": Patch(
        "engine", "sum(guess == token_id for guess, token_id in pairs)", "len(share.drafted) + 1"
    ),
    "seed 0 is no seed": Patch(
        "intake",
        "self._draw_seed() if params.seed is None else params.seed",
        "params.seed or self._draw_seed()",
    ),
    "constrained answers are drafted for": Patch(
        "intake", "asked and params.constraint is None and", "asked and"
    ),
    "speculation can't be asked for by a request": Patch(
        "intake",
        "config.speculation if params.speculation is None else params.speculation",
        "config.speculation",
    ),
    "a choice masks another": Patch("intake", "mask=masks[choice]", "mask=masks[0]"),
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

ANSWER_BUGS = SAMPLING | EDITS | COMMIT | ENGINE
