"""The client of the face, against a real gRPC server: tensors out, deltas in, statuses to errors."""

import asyncio
import socket
from contextlib import aclosing
from typing import Any

import grpc
import httpx
import pytest

from tests.triton_backend.openai.fake_face import (
    FakeFace,
    Piece,
    aborting,
    failing,
    hanging,
    saying,
    saying_each,
)
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.faces.forerun import FORERUN
from triton_backend.messages import Terms
from triton_backend.openai import face as faces
from triton_backend.openai.errors import ApiError
from triton_backend.openai.face import AnswerDelta, AnswerToken, Ask, Candidate, Face
from triton_backend.openai.vouching import TAG_LIFE_S, Vouching
from triton_backend.request import FinishReason, SamplingParams
from triton_backend.responder import FailureKind
from triton_backend.segments import Segment, SegmentKind
from triton_backend.tenancy import verify

PROMPT = faces.text_prompt("Hi")
SECRET = b"s" * 32
VOUCHING = Vouching(SECRET, lambda: 1000.5)


@pytest.fixture
def address(fake_face: tuple[FakeFace, str]) -> str:
    return fake_face[1]


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


def test_parameters_travel_in_tensors_of_their_own(face: FakeFace, address: str) -> None:
    answer(
        address,
        ask(
            temperature=0.5,
            top_k=3,
            top_p=0.25,
            seed=-(2**63),
            max_tokens=9,
            min_tokens=2,
            stop=("é", "b"),
            stop_token_ids=(5, 6),
            ignore_eos=True,
            logprobs=1,
        ),
    )
    (asked,) = face.asked
    assert (asked.id, asked.model) == ("id-0", "tiny")
    assert asked.tensors == {
        "text": [b"Hi"],
        "temperature": [0.5],
        "top_k": [3],
        "top_p": [0.25],
        "seed": [-(2**63)],
        "max_tokens": [9],
        "min_tokens": [2],
        "stop": ["é".encode(), b"b"],
        "stop_token_ids": [5, 6],
        "ignore_eos": [True],
        "logprobs": [1],
        "stream": [True],
    }


def test_what_few_ask_for_travels_in_tensors_too(face: FakeFace, address: str) -> None:
    params = SamplingParams(
        num_choices=1,
        include_stop=True,
        min_p=0.25,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((3, 0.5), (4, -100)),
        constraint=Constraint(ConstraintKind.REGEX, "é+"),
    )
    terms = Terms(cache_salt="mine", priority=-2, bad_words=("no", "é"))
    answer(address, Ask(PROMPT, params, is_streamed=True, terms=terms))
    (asked,) = face.asked
    plain = {"text", "temperature", "top_k", "top_p", "min_tokens", "ignore_eos", "stream"}
    assert {name: asked.tensors[name] for name in asked.tensors.keys() - plain} == {
        "include_stop": [True],
        "min_p": [0.25],
        "repetition_penalty": [1.5],
        "presence_penalty": [0.5],
        "frequency_penalty": [-0.5],
        "logit_bias_ids": [3, 4],
        "logit_bias": [0.5, -100],
        "constraint_kind": [b"regex"],
        "constraint": ["é+".encode()],
        "cache_salt": [b"mine"],
        "priority": [-2],
        "bad_words": [b"no", "é".encode()],
    }


def test_what_is_not_given_is_not_sent(face: FakeFace, address: str) -> None:
    answer(address, ask(is_streamed=False))
    needed = {"text", "temperature", "top_k", "top_p", "min_tokens", "ignore_eos", "stream"}
    assert face.asked[0].tensors.keys() == needed
    assert face.asked[0].tensors["stream"] == [False]


def test_each_request_of_a_call_says_whose_it_is(face: FakeFace, address: str) -> None:
    answer(address, ask(), ask())
    for asked in face.asked:
        claim = asked.parameters
        assert set(claim) == {"tenant", "tenant_expires", "tenant_tag"}
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


def test_segments_keep_their_kinds() -> None:
    segments = [Segment(SegmentKind.CONTROL, "<s>"), Segment(SegmentKind.TEXT, "é")]
    texts, kinds = faces.segments_prompt(segments)
    assert (texts.name(), texts.shape()) == ("segments", [2])
    assert (kinds.name(), kinds.datatype()) == ("segment_kinds", "BYTES")


def test_the_outputs_that_are_asked_for_are_those_of_the_face() -> None:
    known = {tensor.name for tensor in FORERUN.outputs}
    assert {*faces.TEXT_OUTPUTS, *faces.TOKEN_OUTPUTS} <= known


def test_deltas_come_as_the_face_sends_them(face: FakeFace, address: str) -> None:
    face.script = saying("Hé", "", finish_reason="length")
    assert answer(address, ask()) == [
        (0, AnswerDelta("Hé", None, 2, 3, 1, ())),
        (0, AnswerDelta("", None, 2, 3, 1, ())),
        (0, AnswerDelta("", FinishReason.LENGTH, 2, 3, 1, ())),
    ]


@pytest.mark.parametrize(
    ("num_top", "top"), [(0, ()), (2, (Candidate(65, b"A", -0.5), Candidate(66, b"B", -1.5)))]
)
def test_logprobs_come_with_their_tokens(
    num_top: int, top: tuple[Any, ...], face: FakeFace, address: str
) -> None:
    face.script = saying("A", "")
    first, second, _ = answer(address, ask(logprobs=num_top))
    assert first[1].tokens == (AnswerToken(Candidate(65, b"A", -0.5), top),)
    assert second[1].tokens == ()


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


def test_a_choice_without_an_end_is_an_error(face: FakeFace, address: str) -> None:
    face.script = saying_each("a", "b")
    with pytest.raises(ApiError) as caught:
        answer(address, ask(num_choices=3))
    assert caught.value.status == 500


def test_a_refused_constraint_goes_by_the_clients_name(face: FakeFace, address: str) -> None:
    face.script = failing("invalid: constraint.text is not a JSON schema.")
    with pytest.raises(ApiError, match=r"^response_format is not a JSON schema\.$") as caught:
        answer(address, Ask(PROMPT, SamplingParams(), True, constraint_field="response_format"))
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("invalid: canary", 400, "invalid_value"),
        ("unavailable: canary", 503, "unavailable"),
        ("internal: canary", 500, "internal"),
        ("cancelled: canary", 499, "cancelled"),
        ("Request for unknown model: 'canary' is not found", 503, "unavailable"),
        ("canary", 503, "unavailable"),
    ],
)
@pytest.mark.parametrize("after", [(), ("x",)])
def test_an_error_in_the_stream_is_told_by_its_kind(
    message: str, status: int, code: str, after: tuple[str, ...], face: FakeFace, address: str
) -> None:
    face.script = failing(message, after=after)
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert (caught.value.status, caught.value.code) == (status, code)
    assert ("canary" in str(caught.value)) == (status == 400)


def test_the_kinds_are_those_of_the_front() -> None:
    assert set(FailureKind) == {"invalid", "unavailable", "internal", "cancelled"}


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [
        (grpc.StatusCode.UNAVAILABLE, 503, "unavailable"),
        (grpc.StatusCode.CANCELLED, 503, "unavailable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 504, "timeout"),
        (grpc.StatusCode.INTERNAL, 500, "internal"),
        (grpc.StatusCode.UNIMPLEMENTED, 500, "internal"),
    ],
)
def test_each_status_of_a_call_is_a_status_of_http(
    code: grpc.StatusCode, status: int, name: str, face: FakeFace, address: str
) -> None:
    face.script = aborting(code)
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert (caught.value.status, caught.value.code) == (status, name)
    assert "canary" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(ApiError) as caught:
        answer(f"127.0.0.1:{free_port()}", ask())
    assert caught.value.status == 503


def test_a_call_that_hangs_ends_at_its_deadline(face: FakeFace, address: str) -> None:
    face.script = hanging("x")
    with pytest.raises(ApiError) as caught:
        answer(address, ask(), deadline_s=0.2)
    assert caught.value.status == 504
    assert face.wait_for_calls(0)


@pytest.mark.parametrize(("reason", "status"), [("cancelled", 499), ("error", 500)])
def test_an_answer_that_ends_badly_is_an_error(
    reason: str, status: int, face: FakeFace, address: str
) -> None:
    face.script = saying("x", finish_reason=reason)
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert caught.value.status == status


def test_a_stream_without_an_end_is_an_error(face: FakeFace, address: str) -> None:
    face.script = lambda _: iter([Piece("x")])
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert caught.value.status == 500


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
    ((_, delta),) = answer(address, Ask(faces.text_prompt(text), SamplingParams(), False))
    assert delta.text == text


def test_liveness_does_not_ask_the_face(http: httpx.Client, face: FakeFace) -> None:
    face.ready = False
    assert http.get("/health/live").json() == {"status": "live"}


def test_the_shim_is_ready_when_its_models_are(http: httpx.Client, face: FakeFace) -> None:
    assert http.get("/health/ready").json() == {"status": "ready"}
    face.ready = False
    response = http.get("/health/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")


def test_a_face_that_is_not_there_is_not_ready() -> None:
    async def is_ready() -> bool:
        async with Face(f"127.0.0.1:{free_port()}", 60, VOUCHING) as face:
            return await face.is_ready("tiny")

    assert not asyncio.run(is_ready())
