"""Prompts that clients want told along with their answers: each choice gets its prompt in its first delta."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from triton_backend.openai.deltas import AnswerDelta, ToldPrompt

Deltas = AsyncGenerator[tuple[int, AnswerDelta], None]


async def telling_prompts(deltas: Deltas) -> Deltas:
    """Yield deltas by their index, with its prompt in the first of each choice.

    The engine tells a prompt once, in the first delta of choice 0. Other choices can begin before it: they reuse the
    blocks of a prompt that it must compute whole. They wait here.
    """
    prompts: dict[int, ToldPrompt] = {}
    waiting: defaultdict[int, list[tuple[int, AnswerDelta]]] = defaultdict(list)
    begun: set[int] = set()
    async with aclosing(deltas):
        async for index, delta in deltas:
            leader = index - delta.choice  # the index of choice 0 of the same prompt
            if delta.prompt is not None:
                prompts[leader] = delta.prompt
            waiting[leader].append((index, delta))
            if leader not in prompts:
                continue
            for each, told in sorted(waiting.pop(leader), key=_leader_first):
                yield each, told if each in begun else replace(told, prompt=prompts[leader])
                begun.add(each)


def _leader_first(indexed: tuple[int, AnswerDelta]) -> bool:
    return indexed[1].choice > 0
