"""Every failure as OpenAI's error object, with its HTTP status.

Messages say what was given, what is allowed and what to do next. They never hold a prompt or an answer;
names that a client made up are shown cut short.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

import grpc
import msgspec
from starlette.responses import Response

from triton_backend.request import SamplingParams
from triton_backend.responder import FailureKind

INVALID = "invalid_request_error"
SERVER = "server_error"
RETRY_AFTER_S = 1
MAX_SHOWN_CHARACTERS = 64
_NAMES = {
    "include_stop": "include_stop_str_in_output",
    "num_choices": "n",
    "prompt_token_ids": "prompt",
}
"""What clients call fields that the engine calls otherwise."""
_OURS = (
    *_NAMES.values(),
    "messages",
    "max_completion_tokens",
    "structured_outputs",
    "response_format",
    "priority",
    "cache_salt",
)
_FIELDS = "|".join([*_OURS, *(field.name for field in fields(SamplingParams))])
_FIELD = re.compile(rf"(?:{_FIELDS})(?:\[\d+\]|\.[a-z_]+)*(?= )")
# How admission.py and loading.py refuse a prompt, or a prompt and its answer, that can't ever fit.
_TOO_LONG = re.compile(r"max_seq_len|the pool has \d+\.$")


class ApiError(Exception):
    """A refused or failed request; the codes are those that OpenAI uses, where it has one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the failure: HTTP status, one line for people, and OpenAI's type, param and code."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Give the error object as JSON."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def response(self) -> Response:
        """Give the HTTP response."""
        return Response(self.body(), self.status, self.headers, "application/json")


def shown(text: str) -> str:
    """Give a name that a client made up, cut to what fits in a message."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def refused(message: str, names: Mapping[str, str] = MappingProxyType({})) -> ApiError:
    """Describe a request that the engine's own rules refuse; their messages open with the field.

    `names` says what the client calls further fields that the engine calls otherwise.
    """
    names = {**_NAMES, **names}
    message = _in_clients_words(message, names)
    if _TOO_LONG.search(message):
        # Clients that don't read the code look for OpenAI's words.
        text = f"this model's maximum context length is exceeded: {message}"
        return ApiError(400, text, code="context_length_exceeded")
    if message.startswith("the prompt "):
        return ApiError(400, message, param=names["prompt_token_ids"], code="invalid_value")
    field = _FIELD.match(message)
    return ApiError(400, message, param=field and field.group(), code="invalid_value")


def failed(message: str, names: Mapping[str, str] = MappingProxyType({})) -> ApiError:
    """Describe an error that came inside a stream; `names` are those of `refused`.

    Only refusals are quoted: what else fails is for the logs of the servers behind.
    """
    kind, _, text = message.partition(": ")
    match kind:
        case FailureKind.INVALID:
            return refused(text, names)
        case FailureKind.TIMEOUT:
            return late()
        case FailureKind.INTERNAL:
            return internal()
        case FailureKind.CANCELLED:
            return cancelled()
    # The front's own word for it, or any of Triton's for a model that is not there.
    return unavailable()


def ended(code: grpc.StatusCode) -> ApiError:
    """Describe a call that ended with a status that is not OK."""
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return late()
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return unavailable()
    return internal()


def late() -> ApiError:
    """Describe an answer whose deadline has passed."""
    return ApiError(
        504,
        "the answer was not finished in the time allowed; ask for fewer tokens.",
        kind=SERVER,
        code="timeout",
    )


def unavailable() -> ApiError:
    """Describe a model that is not there, or has no room."""
    return ApiError(
        503,
        "the model can't take requests now; try again in a moment.",
        kind=SERVER,
        code="unavailable",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )


def cancelled() -> ApiError:
    """Describe an answer that was ended by somebody else than the client."""
    return ApiError(499, "the request was cancelled.", kind=SERVER, code="cancelled")


def internal() -> ApiError:
    """Describe a failure that is not the client's."""
    return ApiError(
        500, "the server failed on this request; its log says how.", kind=SERVER, code="internal"
    )


def _in_clients_words(message: str, names: Mapping[str, str]) -> str:
    """Put the client's names in place of the engine's, wherever they stand as words of their own."""
    longest_first = sorted(names, key=len, reverse=True)
    engines = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return engines.sub(lambda found: names[found[0]], message)
