"""Counts a step as done: tokens computed, tokens appended where they were drawn, answers that end.

It changes sequences and drives masks and the text stage; queues and blocks are others' to clear afterwards.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from builder.errors import RequestError
from triton_backend.failures import log_failure
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.request import Delta, FinishReason, TokenLogprobs
from triton_backend.rows import Drawn, NoToken
from triton_backend.sequence import Sequence
from triton_backend.text import TextStage

logger = logging.getLogger(__name__)

NO_LOGPROBS: Mapping[int, TokenLogprobs] = MappingProxyType({})

FAILURES = {
    NoToken.BROKEN: "the engine gave logits that are not finite numbers.",
    NoToken.BROKEN_BY_PROCESSOR: "the logits processors left logits that are not finite numbers.",
}

Told = tuple[Drawn, TokenLogprobs | None]
"""What a logit row gave, and log-probabilities."""


@dataclass(slots=True)
class _Run:
    """What one step adds to an answer, and how the answer ends if it does."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    text: str = ""
    reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None


def commit(
    plan: StepPlan,
    token_ids: Iterable[Drawn],
    *,
    text_stage: TextStage,
    logprobs: Mapping[int, TokenLogprobs] = NO_LOGPROBS,
) -> list[Delta]:
    """Count a plan as done; give one delta per sequence that got tokens or failed, in their order.

    `token_ids` are what was sampled for the logit rows.
    `logprobs` are those of the rows that ask for them, by row. A sequence that fails ends with an error
    and takes no other with it.
    """
    rows = [(token_id, logprobs.get(row)) for row, token_id in enumerate(token_ids)]
    deltas = []
    end = 0
    for share in plan.scheduled:
        start, end = end, end + share.num_rows
        drawn = rows[start:end]
        num_told = _tell_prompt(share, drawn)
        share.sequence.num_computed += share.num_known_tokens
        if num_told < len(drawn):
            deltas.append(_append(share, drawn[num_told:], text_stage))
    assert end == len(rows), "other rows were sampled than planned"
    return deltas


def cut_off(
    sequence: Sequence, reason: FinishReason, text_stage: TextStage, error: str | None = None
) -> Delta:
    """End an answer that did not come to its own end; text that was held back is dropped."""
    _drop_text(sequence, text_stage)
    return _delta(sequence, _Run([], [], reason=reason, error=error))


def _tell_prompt(share: Scheduled, drawn: list[Told]) -> int:
    """Keep the log-probabilities of rows inside the prompt; give the number of these rows."""
    sequence = share.sequence
    if sequence.request.params.prompt_logprobs is None:
        return 0
    first_row = sequence.num_computed + share.num_tokens - share.num_rows
    num_told = min(max(sequence.num_known - 1 - first_row, 0), share.num_rows)
    for _, told in drawn[:num_told]:
        assert told is not None, "a row inside a prompt was not told"
        sequence.prompt_logprobs.append(told)
    return num_told


def _append(share: Scheduled, drawn: list[Told], text_stage: TextStage) -> Delta:
    """Append what was drawn as long as it is what was guessed, and one token more."""
    sequence, run = share.sequence, _Run([], [])
    is_first = not sequence.num_generated
    guesses = (*share.drafted, None)
    for (token_id, told), guess in zip(drawn, guesses):  # noqa: B905 - one each; asking costs as much again
        _take(run, sequence, token_id, text_stage)
        if told is not None and run.error is None:
            run.logprobs.append(told)
        if run.reason is not None or token_id != guess:
            break
        # What was computed for the guess is this token's.
        sequence.num_computed += 1
    delta = _delta(sequence, run)
    tells_prompt = is_first and run.token_ids and sequence.asks_prompt_logprobs
    return _with_prompt(delta, sequence) if tells_prompt else delta


def _take(run: _Run, sequence: Sequence, token_id: Drawn, text_stage: TextStage) -> None:
    """Append one token to an answer, and see whether it ends."""
    if isinstance(token_id, NoToken):
        _end_without(run, sequence, token_id, text_stage)
        return
    doing = "following the constraint"
    try:
        if sequence.mask is not None:
            sequence.mask.accept(token_id)
        doing = "turning tokens into text"
        _read(run, sequence, token_id, text_stage)
    except RequestError as mistake:
        _fail(run, sequence, text_stage, str(mistake), FinishReason.INVALID)
        return
    except Exception as failure:  # noqa: BLE001 - one answer fails, and others go on
        log_failure(logger, f"{doing} failed", failure)
        error = f"{doing} failed with {type(failure).__name__}."
        _fail(run, sequence, text_stage, error)
        return
    sequence.token_ids.append(token_id)
    run.token_ids.append(token_id)


def _read(run: _Run, sequence: Sequence, token_id: int, text_stage: TextStage) -> None:
    """Take the text of an answer's next token; see why the answer ends with it, and at what."""
    answer_id = sequence.answer_id
    text, stop = "", None
    is_stopping = token_id in sequence.stopping_ids
    if not is_stopping or sequence.request.params.include_stop:
        text, stop = text_stage.extend(answer_id, (token_id,))
    run.text += text
    if is_stopping or stop is not None:
        run.reason, run.stop_reason = FinishReason.STOP, token_id if is_stopping else stop
    elif sequence.mask is not None and sequence.mask.is_complete:
        run.reason = FinishReason.STOP
    elif sequence.num_known + 1 >= sequence.max_known:
        run.reason = FinishReason.LENGTH
    else:
        return
    run.text += text_stage.finish(answer_id)


def _end_without(run: _Run, sequence: Sequence, why: NoToken, text_stage: TextStage) -> None:
    """End an answer that no token was drawn for."""
    if why is NoToken.NOTHING_LEFT and sequence.mask is not None and sequence.mask.is_complete:
        # It was whole before its first token.
        run.reason = FinishReason.STOP
        run.text += text_stage.finish(sequence.answer_id)
        return
    if why is NoToken.NOTHING_LEFT:
        _fail(run, sequence, text_stage, nothing_left(sequence), FinishReason.INVALID)
    else:
        _fail(run, sequence, text_stage, FAILURES[why])


def nothing_left(sequence: Sequence) -> str:
    """Say which fields of a request leave no token to go on with."""
    params, num_generated = sequence.request.params, sequence.num_generated
    bans = {
        "logit_bias": params.logit_bias,
        "bad_words": params.bad_words,
        "min_tokens": num_generated < params.min_tokens,
        "logits_processors": params.logits_processors,
        "constraint": params.constraint,
    }
    names = " with ".join(name for name, is_on in bans.items() if is_on)
    return (
        f"{names} leaves no token to go on with after {num_generated} generated tokens; relax it."
    )


def _fail(
    run: _Run,
    sequence: Sequence,
    text_stage: TextStage,
    error: str,
    reason: FinishReason = FinishReason.ERROR,
) -> None:
    """End a run with an error; the tokens before it stay."""
    _drop_text(sequence, text_stage)
    run.reason, run.stop_reason, run.error = reason, None, error


def _drop_text(sequence: Sequence, text_stage: TextStage) -> None:
    try:
        text_stage.finish(sequence.answer_id)
    except Exception as failure:  # noqa: BLE001 - the answer ends anyway, and others go on
        log_failure(logger, "the text stage failed", failure)


def _with_prompt(delta: Delta, sequence: Sequence) -> Delta:
    return delta._replace(
        prompt_logprobs=tuple(sequence.prompt_logprobs),
        prompt_token_ids=sequence.request.prompt_token_ids,
    )


def _delta(sequence: Sequence, run: _Run) -> Delta:
    # By place, as names cost as much again: this is the step's most frequent line.
    return Delta(
        sequence.request.request_id,
        tuple(run.token_ids),
        run.text,
        run.reason,
        run.stop_reason,
        sequence.num_prompt,
        sequence.num_generated,
        run.error,
        tuple(run.logprobs),
        choice=sequence.choice,
        num_cached_tokens=sequence.num_cached,
    )
