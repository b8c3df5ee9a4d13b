"""Counts a step as done: tokens computed, one token appended per logit row, answers that end.

It changes sequences and drives the text stage; queues and blocks are the engine's to clear afterwards.
"""

import logging
import traceback
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from triton_backend.request import Delta, FinishReason, TokenLogprobs
from triton_backend.scheduler import StepPlan
from triton_backend.sequence import Sequence
from triton_backend.text import TextStage

logger = logging.getLogger(__name__)

NO_LOGPROBS: Mapping[int, TokenLogprobs] = MappingProxyType({})


def commit(
    plan: StepPlan,
    token_ids: Iterable[int | None],
    *,
    text_stage: TextStage,
    logprobs: Mapping[int, TokenLogprobs] = NO_LOGPROBS,
) -> list[Delta]:
    """Count a plan as done, and give one delta per logit row.

    `token_ids` are those sampled for the logit rows; None where the logits were not finite numbers.
    `logprobs` are those of the rows that ask for them, by row. A sequence that fails ends with an error
    and takes no other with it.
    """
    for sequence, num_tokens, _ in plan.scheduled:
        sequence.num_computed += num_tokens
    rows = enumerate(zip(plan.logit_sequences, token_ids, strict=True))
    return [
        _append(sequence, token_id, text_stage, logprobs.get(row))
        for row, (sequence, token_id) in rows
    ]


def cut_off(
    sequence: Sequence, reason: FinishReason, text_stage: TextStage, error: str | None = None
) -> Delta:
    """End an answer that did not come to its own end; text that was held back is dropped."""
    try:
        text_stage.finish(sequence.request.request_id)
    except Exception as failure:  # noqa: BLE001 - the answer ends anyway, and others go on
        _log(failure)
    return Delta(
        request_id=sequence.request.request_id,
        token_ids=(),
        text="",
        finish_reason=reason,
        stop_reason=None,
        num_prompt_tokens=sequence.num_prompt,
        num_generated_tokens=sequence.num_generated,
        error=error,
    )


def _append(
    sequence: Sequence, token_id: int | None, text_stage: TextStage, logprobs: TokenLogprobs | None
) -> Delta:
    """Append one token to an answer, and see whether it ends."""
    if token_id is None:
        error = "the engine gave logits that are not finite numbers."
        return cut_off(sequence, FinishReason.ERROR, text_stage, error)
    try:
        text, reason, stop_reason = _read(sequence, token_id, text_stage)
    except Exception as failure:  # noqa: BLE001 - one answer fails, and others go on
        _log(failure)
        error = f"turning tokens into text failed with {type(failure).__name__}."
        return cut_off(sequence, FinishReason.ERROR, text_stage, error)
    sequence.token_ids.append(token_id)
    return Delta(
        request_id=sequence.request.request_id,
        token_ids=(token_id,),
        text=text,
        finish_reason=reason,
        stop_reason=stop_reason,
        num_prompt_tokens=sequence.num_prompt,
        num_generated_tokens=sequence.num_generated,
        logprobs=() if logprobs is None else (logprobs,),
    )


def _read(
    sequence: Sequence, token_id: int, text_stage: TextStage
) -> tuple[str, FinishReason | None, int | str | None]:
    """Give the text of an answer's next token, why the answer ends with it, and at what."""
    text = ""
    stop: int | str | None = token_id
    if token_id not in sequence.stopping_ids:
        text, stop = text_stage.extend(sequence.request.request_id, (token_id,))
    if stop is not None:
        reason = FinishReason.STOP
    elif sequence.num_known + 1 >= sequence.max_known:
        reason = FinishReason.LENGTH
    else:
        return text, None, None
    return text + text_stage.finish(sequence.request.request_id), reason, stop


def _log(failure: Exception) -> None:
    """Log where the text stage failed, without the message: it may quote an answer."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    logger.error("the text stage failed with %s\n%s", type(failure).__name__, where)
