"""Serves requests in an engine and keeps all that was answered, in a form that is equal only bit by bit."""

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from triton_backend.engine import Engine
from triton_backend.request import Delta, FinishReason, Request, TokenLogprobs

Key = tuple[str, int]
"""Request id and choice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of one request."""

    token_ids: tuple[int, ...]
    logprobs: tuple[bytes, ...]
    """Per token: logprob, rank, likeliest ids and their logprobs, packed; equal bytes are equal bits."""
    text: str
    finish_reason: FinishReason
    num_cached_tokens: int


def serve(engine: Engine, requests: Sequence[Request], *, stagger: int = 0) -> dict[Key, Answer]:
    """Serve `requests` to their ends; each joins `stagger` steps after the one before it."""
    heard: dict[Key, list[Delta]] = defaultdict(list)
    waiting, step = list(requests), 0
    while waiting or engine.has_work:
        while waiting and step >= stagger * (len(requests) - len(waiting)):
            engine.submit(waiting.pop(0))
        for delta in engine.step():
            heard[delta.request_id, delta.choice].append(delta)
        step += 1
    return {key: _answer(deltas) for key, deltas in heard.items()}


def _answer(deltas: Sequence[Delta]) -> Answer:
    """Put the deltas of one choice together."""
    reason = deltas[-1].finish_reason
    assert reason is not None
    return Answer(
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(_bits(each) for delta in deltas for each in delta.logprobs),
        text="".join(delta.text for delta in deltas),
        finish_reason=reason,
        num_cached_tokens=max(delta.num_cached_tokens for delta in deltas),
    )


def _bits(logprobs: TokenLogprobs) -> bytes:
    numbers = (logprobs.logprob, *logprobs.top_logprobs)
    ids = (logprobs.rank, *logprobs.top_ids)
    return struct.pack(f"<{len(numbers)}d{len(ids)}q", *numbers, *ids)


def first_difference(expected: Answer, given: Answer) -> str | None:
    """Say where two answers differ, in places and never in text; None where they are equal."""
    for name in ("token_ids", "logprobs"):
        ours, theirs = getattr(expected, name), getattr(given, name)
        pairs = enumerate(zip(ours, theirs, strict=False))
        place = next((index for index, (one, other) in pairs if one != other), None)
        if place is not None:
            return f"{name} from token {place} on"
        if len(ours) != len(theirs):
            return f"{name}: {len(theirs)} for {len(ours)}"
    for name in ("text", "finish_reason"):
        if getattr(expected, name) != getattr(given, name):
            return name
    return None
