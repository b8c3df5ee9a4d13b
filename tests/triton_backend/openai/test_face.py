"""The client of the face, against a real gRPC server: calls, and whose answer is whose."""

import asyncio
from contextlib import aclosing

from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.making import SECRET, VOUCHING, answer, ask
from tests.triton_backend.openai.scripts import Piece, hanging, saying_each
from triton_backend.openai.asks import Ask, text_prompt
from triton_backend.openai.face import Face
from triton_backend.openai.vouching import TAG_LIFE_S, Vouching
from triton_backend.request import SamplingParams
from triton_backend.tenancy import verify


def test_each_request_of_a_call_says_whose_it_is(face: FakeFace, address: str) -> None:
    answer(address, ask(), ask())
    for asked in face.asked:
        claim = asked.parameters
        assert set(claim) - {"timeout"} == {"tenant", "tenant_expires", "tenant_tag"}
        assert (claim["tenant"], claim["tenant_expires"]) == ("t", 1000 + TAG_LIFE_S)
        assert verify(
            SECRET,
            claim["tenant_tag"],
            tenant="t",
            request_id=asked.id,
            expires_s=claim["tenant_expires"],
            now_s=1000.5,
        )


def test_without_a_secret_nobody_is_vouched_for() -> None:
    assert Vouching(b"", lambda: 1.0).parameters("t", "id") == {}
    assert "sss" not in repr(VOUCHING)


def test_answers_of_one_call_are_told_apart(face: FakeFace, address: str) -> None:
    face.script = lambda asked: iter([Piece(asked.id, finish_reason="stop")])
    deltas = answer(address, ask(), ask(), ask())
    assert [(index, delta.text) for index, delta in deltas] == [(i, f"id-{i}") for i in (2, 1, 0)]


def test_choices_are_numbered_after_those_of_the_asks_before(face: FakeFace, address: str) -> None:
    face.script = saying_each("a", "b")
    deltas = answer(address, ask(num_choices=2), ask(num_choices=2))
    texts = {index: delta.text for index, delta in deltas if delta.text}
    assert texts == {0: "a", 1: "b", 2: "a", 3: "b"}
    ended = [index for index, delta in deltas if delta.finish_reason]
    assert sorted(ended) == [0, 1, 2, 3]


def test_closing_the_deltas_cancels_the_call(face: FakeFace, address: str) -> None:
    face.script = hanging("x")

    async def leave() -> None:
        async with (
            Face(address, 60, VOUCHING) as client,
            aclosing(client.answer("tiny", "id", [ask()], tenant="t")) as it,
        ):
            await anext(it)

    asyncio.run(leave())
    assert face.wait_for_calls(0)


def test_large_messages_pass_both_ways(face: FakeFace, address: str) -> None:
    text = "x" * 6_000_000
    face.script = lambda asked: iter([Piece(asked.tensors["text"][0].decode(), "stop", ())])
    ((_, delta),) = answer(address, Ask(text_prompt(text), SamplingParams(), False))
    assert delta.text == text


def test_the_engine_hears_the_deadline_in_microseconds(face: FakeFace, address: str) -> None:
    answer(address, ask(), deadline_s=12.5)
    assert face.asked[0].parameters["timeout"] == 12_500_000
