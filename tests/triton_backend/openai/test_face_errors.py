"""What ends a call to the face badly becomes an error object of OpenAI's."""

import grpc
import pytest

from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.making import PROMPT, answer, ask, free_port
from tests.triton_backend.openai.scripts import Piece, aborting, failing, hanging, saying_each
from triton_backend.openai import face as faces
from triton_backend.openai.asks import Ask
from triton_backend.openai.errors import ApiError
from triton_backend.request import SamplingParams
from triton_backend.responder import FailureKind


def test_a_refused_constraint_goes_by_the_clients_name(face: FakeFace, address: str) -> None:
    face.script = failing("invalid: constraint.text is not a JSON schema.")
    names = {"constraint.text": "response_format"}
    with pytest.raises(ApiError, match=r"^response_format is not a JSON schema\.$") as caught:
        answer(address, Ask(PROMPT, SamplingParams(), True, names=names))
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("invalid: canary", 400, "invalid_value"),
        ("unavailable: canary", 503, "unavailable"),
        ("timeout: canary", 504, "timeout"),
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
    assert set(FailureKind) == {"invalid", "unavailable", "timeout", "internal", "cancelled"}


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


def test_a_call_that_hangs_ends_after_its_deadline(
    face: FakeFace, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faces, "HANGS_S", 0.1)
    face.script = hanging("x")
    with pytest.raises(ApiError) as caught:
        answer(address, ask(), deadline_s=0.1)
    assert caught.value.status == 504
    assert face.wait_for_calls(0)


def test_a_stream_without_an_end_is_an_error(face: FakeFace, address: str) -> None:
    face.script = lambda _: iter([Piece("x")])
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert caught.value.status == 500


def test_a_choice_without_an_end_is_an_error(face: FakeFace, address: str) -> None:
    face.script = saying_each("a", "b")
    with pytest.raises(ApiError) as caught:
        answer(address, ask(num_choices=3))
    assert caught.value.status == 500
