"""A gRPC server that speaks Triton's protocol and plays the `forerun` face by a script.

Its tokens are bytes: token id b stands for byte b, as in the tiny models of tests/models.py. It gives the outputs
that a request names and no others, puts errors where Triton puts them, and knows which calls are open. Of the
prompts of a call it serves the last one first.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

WAIT_S = 60
NUM_CACHED = 1
NUMPY_TYPES: dict[str, Any] = {
    "INT32": np.int32,
    "INT64": np.int64,
    "FP32": np.float32,
    "BOOL": np.bool_,
}


class FailedError(Exception):
    """Raised by a script to end a call with an error inside its stream."""


class AbortedError(Exception):
    """Raised by a script to end a call with a status."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self.code = code


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    id: str
    model: str
    tensors: dict[str, list[Any]]
    datatypes: dict[str, str]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    call_ended: threading.Event = field(repr=False)


@dataclass(frozen=True)
class Piece:
    """What one response of a script holds."""

    text: str = ""
    finish_reason: str = ""
    token_ids: tuple[int, ...] | None = None
    """By default the bytes of the text."""
    logprob: float = -0.5
    choice: int = 0

    @property
    def ids(self) -> list[int]:
        return list(self.text.encode()) if self.token_ids is None else list(self.token_ids)


Script = Callable[[Asked], Iterator[Piece]]


def saying(*texts: str, finish_reason: str = "stop") -> Script:
    """Answer with these texts, a delta each."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from map(Piece, texts)
        yield Piece(finish_reason=finish_reason)

    return script


def saying_each(*texts: str) -> Script:
    """Answer with a choice for each text, in two deltas each; the last choice is finished first."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from [Piece(text, choice=choice) for choice, text in enumerate(texts)]
        for choice in reversed(range(len(texts))):
            yield Piece(finish_reason="stop", choice=choice)

    return script


def failing(message: str, *, after: tuple[str, ...] = ()) -> Script:
    """Fail as a face does, after these texts."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from map(Piece, after)
        raise FailedError(message)

    return script


def aborting(code: grpc.StatusCode) -> Script:
    """End the call with a status."""

    def script(_: Asked) -> Iterator[Piece]:
        yield Piece("x")
        raise AbortedError(code)

    return script


def hanging(*texts: str) -> Script:
    """Say these texts and then nothing until the call ends."""

    def script(asked: Asked) -> Iterator[Piece]:
        yield from map(Piece, texts)
        asked.call_ended.wait(WAIT_S)

    return script


class FakeFace(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The server behind the shim."""

    def __init__(self) -> None:
        self._open = 0
        self._changed = threading.Condition()
        self.reset()

    def reset(self) -> None:
        """Forget what was asked and play the first script again, once no call is open."""
        assert self.wait_for_calls(0)
        self.script: Script = saying("Hello", ", wor", "ld")
        self.ready = True
        self.asked: list[Asked] = []

    def wait_for_calls(self, count: int) -> bool:
        """Wait until so many calls are open."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == count, WAIT_S)

    def ModelReady(self, *_: Any) -> Any:  # noqa: N802 - named by the protocol
        return service_pb2.ModelReadyResponse(ready=self.ready)

    def ModelStreamInfer(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        # It can end the real server.
        assert "triton_grpc_error" not in dict(context.invocation_metadata())
        ended = threading.Event()
        context.add_callback(ended.set)
        script = self.script
        self._count(1)
        try:
            asked = [_asked(request, ended) for request in request_iterator]
            self.asked += asked
            yield from _responses([_answer(each, script) for each in reversed(asked)])
        except FailedError as error:
            yield service_pb2.ModelStreamInferResponse(error_message=str(error))
        except AbortedError as error:
            context.abort(error.code, "canary")
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._open += change
            self._changed.notify_all()


@contextlib.contextmanager
def serving(face: FakeFace) -> Iterator[str]:
    """Serve on a free port; give the address."""
    # Triton has no limit of its own.
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(32), options=options)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(face, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def num_prompt_tokens(asked: Asked) -> int:
    """Count a prompt as this face does: bytes of text, one for a control token."""
    tensors = asked.tensors
    if "segments" in tensors:
        pairs = zip(tensors["segments"], tensors["segment_kinds"], strict=True)
        return sum(1 if kind == b"control" else len(text) for text, kind in pairs)
    return len(tensors["text"][0]) if "text" in tensors else len(tensors["token_ids"])


def _responses(running: list[Iterator[Any]]) -> Iterator[Any]:
    """Take a response of each answer in turn."""
    while running:
        for answer in list(running):
            try:
                response = next(answer)
            except StopIteration:
                running.remove(answer)
            else:
                yield service_pb2.ModelStreamInferResponse(infer_response=response)


def _answer(asked: Asked, script: Script) -> Iterator[Any]:
    pieces = script(asked)
    if asked.tensors["stream"] == [False]:
        pieces = _joined(list(pieces))
    num_generated: Counter[int] = Counter()
    for piece in pieces:
        num_generated[piece.choice] += len(piece.ids)
        yield _response(asked, piece, num_generated[piece.choice])


def _asked(request: Any, call_ended: threading.Event) -> Asked:
    tensors = {}
    for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            values = deserialize_bytes_tensor(content)
        else:
            values = np.frombuffer(content, NUMPY_TYPES[tensor.datatype])
        assert list(tensor.shape) == [len(values)]
        tensors[tensor.name] = values.tolist()
    return Asked(
        id=request.id,
        model=request.model_name,
        tensors=tensors,
        datatypes={tensor.name: tensor.datatype for tensor in request.inputs},
        outputs=tuple(output.name for output in request.outputs),
        parameters={
            name: getattr(value, value.WhichOneof("parameter_choice"))
            for name, value in request.parameters.items()
        },
        call_ended=call_ended,
    )


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    for choice in sorted({piece.choice for piece in pieces}):
        own = [piece for piece in pieces if piece.choice == choice]
        yield Piece(
            text="".join(piece.text for piece in own),
            finish_reason="".join(piece.finish_reason for piece in own),
            token_ids=tuple(token_id for piece in own for token_id in piece.ids),
            logprob=own[0].logprob,
            choice=choice,
        )


def _response(asked: Asked, piece: Piece, num_generated: int) -> Any:
    ids = piece.ids
    num_top = asked.tensors.get("logprobs", [0])[0]
    values: dict[str, tuple[str, list[Any]]] = {
        "text": ("BYTES", [piece.text.encode()]),
        "finish_reason": ("BYTES", [piece.finish_reason.encode()]),
        "num_prompt_tokens": ("INT32", [num_prompt_tokens(asked)]),
        "num_generated_tokens": ("INT32", [num_generated]),
        "num_cached_tokens": ("INT32", [NUM_CACHED]),
        "choice": ("INT32", [piece.choice]),
        "token_ids": ("INT32", ids),
        "token_bytes": ("BYTES", list(map(_bytes, ids))),
        "logprobs": ("FP32", [piece.logprob] * len(ids)),
        # The token itself is the likeliest, then come the ids above it.
        "top_ids": ("INT32", [id_ + rank for id_ in ids for rank in range(num_top)]),
        "top_bytes": ("BYTES", [_bytes(id_ + rank) for id_ in ids for rank in range(num_top)]),
        "top_logprobs": ("FP32", [piece.logprob - rank for _ in ids for rank in range(num_top)]),
    }
    response = service_pb2.ModelInferResponse(id=asked.id, model_name=asked.model)
    for name in asked.outputs:
        datatype, content = values[name]
        response.outputs.add(name=name, datatype=datatype, shape=[len(content)])
        response.raw_output_contents.append(_raw(datatype, content))
    return response


def _bytes(token_id: int) -> bytes:
    return bytes([token_id]) if token_id < 256 else b""


def _raw(datatype: str, content: list[Any]) -> bytes:
    if datatype == "BYTES":
        packed = serialize_byte_tensor(np.array(content, np.object_))
        return packed.item() if packed.size else b""
    return np.array(content, NUMPY_TYPES[datatype]).tobytes()
