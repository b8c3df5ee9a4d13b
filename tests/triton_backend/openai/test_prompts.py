"""Prompts are told with every choice, whichever comes first."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from triton_backend.openai.deltas import AnswerDelta, ToldPrompt
from triton_backend.openai.errors import ApiError, internal
from triton_backend.openai.prompts import Deltas, telling_prompts

PLAIN = AnswerDelta("x", None, 1, 1, 0, ())
FIRST, SECOND = ToldPrompt(1, b"a", ()), ToldPrompt(2, b"b", ())


def delta(choice: int = 0, prompt: ToldPrompt | None = None, text: str = "x") -> AnswerDelta:
    return replace(PLAIN, choice=choice, prompt=prompt, text=text)


async def coming(*deltas: tuple[int, AnswerDelta]) -> Deltas:
    for each in deltas:
        yield each


def told(*deltas: tuple[int, AnswerDelta]) -> list[tuple[int, AnswerDelta]]:
    async def collect() -> list[tuple[int, AnswerDelta]]:
        return [each async for each in telling_prompts(coming(*deltas))]

    return asyncio.run(collect())


def test_the_first_delta_of_each_choice_has_the_prompt_and_no_other() -> None:
    assert told((0, delta(0, FIRST)), (1, delta(1)), (0, delta(0)), (1, delta(1))) == [
        (0, delta(0, FIRST)),
        (1, delta(1, FIRST)),
        (0, delta(0)),
        (1, delta(1)),
    ]


def test_choices_that_begin_before_the_prompt_is_told_wait_for_it() -> None:
    early = [(2, delta(2, text="a")), (1, delta(1, text="b")), (2, delta(2, text="c"))]
    assert told(*early, (0, delta(0, FIRST)), (1, delta(1, text="d"))) == [
        (0, delta(0, FIRST)),
        (2, delta(2, FIRST, "a")),
        (1, delta(1, FIRST, "b")),
        (2, delta(2, None, "c")),
        (1, delta(1, None, "d")),
    ]


def test_choices_of_another_prompt_have_that_one() -> None:
    assert told((3, delta(1)), (0, delta(0, FIRST)), (2, delta(0, SECOND))) == [
        (0, delta(0, FIRST)),
        (2, delta(0, SECOND)),
        (3, delta(1, SECOND)),
    ]


def test_leaving_early_leaves_what_is_listened_to() -> None:
    has_left = []

    async def endless() -> AsyncGenerator[tuple[int, AnswerDelta], None]:
        try:
            while True:
                yield 0, delta(0, FIRST)
        finally:
            has_left.append(True)

    async def leave() -> None:
        deltas = telling_prompts(endless())
        await anext(deltas)
        await deltas.aclose()

    asyncio.run(leave())
    assert has_left == [True]


def test_a_failure_passes_through() -> None:
    async def failing() -> AsyncGenerator[tuple[int, AnswerDelta], None]:
        yield 1, delta(1)
        raise internal()

    async def collect() -> None:
        async for _ in telling_prompts(failing()):
            pass

    with pytest.raises(ApiError):
        asyncio.run(collect())
