"""Asks and answers of tests: the client of the face, used once."""

import asyncio
import socket
from typing import Any

from triton_backend.openai.asks import Ask, text_prompt
from triton_backend.openai.deltas import AnswerDelta
from triton_backend.openai.face import Face
from triton_backend.openai.vouching import Vouching
from triton_backend.request import SamplingParams

PROMPT = text_prompt("Hi")
SECRET = b"s" * 32
VOUCHING = Vouching(SECRET, lambda: 1000.5)


def ask(*, is_streamed: bool = True, **params: Any) -> Ask:
    return Ask(PROMPT, SamplingParams(**params), is_streamed=is_streamed)


def answer(address: str, *asks: Ask, deadline_s: float = 60) -> list[tuple[int, AnswerDelta]]:
    async def collect() -> list[tuple[int, AnswerDelta]]:
        async with Face(address, deadline_s, VOUCHING) as face:
            return [each async for each in face.answer("tiny", "id", asks, tenant="t")]

    return asyncio.run(collect())


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
