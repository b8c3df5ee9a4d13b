"""A gRPC server that speaks Triton's protocol and plays the `forerun` face by a script.

Its tokens are bytes: token id b stands for byte b, as in the tiny models of tests/models.py. It gives the outputs
that a request names and no others, puts errors where Triton puts them, and knows which calls are open. Of the
prompts of a call it serves the last one first.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from tests.triton_backend.openai.scripts import (
    WAIT_S,
    AbortedError,
    Asked,
    FailedError,
    Piece,
    Script,
    saying,
)

NUM_CACHED = 1
PROMPT_LOGPROB = -0.25
NUMPY_TYPES: dict[str, Any] = {
    "INT32": np.int32,
    "INT64": np.int64,
    "FP32": np.float32,
    "BOOL": np.bool_,
}


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


def prompt_ids(asked: Asked) -> list[int]:
    """Encode a prompt as this face does: bytes of text, one id for a control token."""
    tensors = asked.tensors
    if "segments" in tensors:
        pairs = zip(tensors["segments"], tensors["segment_kinds"], strict=True)
        return [id_ for text, kind in pairs for id_ in ([258] if kind == b"control" else text)]
    return list(tensors["text"][0] if "text" in tensors else tensors["token_ids"])


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
    begun: set[int] = set()
    for piece in pieces:
        num_generated[piece.choice] += len(piece.ids)
        prompt = [] if piece.choice or 0 in begun else prompt_ids(asked)
        begun.add(piece.choice)
        yield _response(asked, piece, num_generated[piece.choice], prompt)


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


def _response(asked: Asked, piece: Piece, num_generated: int, prompt: list[int]) -> Any:
    values: dict[str, tuple[str, list[Any]]] = {
        "text": ("BYTES", [piece.text.encode()]),
        "finish_reason": ("BYTES", [piece.finish_reason.encode()]),
        "num_prompt_tokens": ("INT32", [len(prompt_ids(asked))]),
        "num_generated_tokens": ("INT32", [num_generated]),
        "num_cached_tokens": ("INT32", [NUM_CACHED]),
        "choice": ("INT32", [piece.choice]),
        "token_ids": ("INT32", piece.ids),
        "token_bytes": ("BYTES", list(map(_bytes, piece.ids))),
        "prompt_token_ids": ("INT32", prompt),
        "prompt_token_bytes": ("BYTES", list(map(_bytes, prompt))),
        **_told("", piece.ids, piece.logprob, asked),
        **_told("prompt_", prompt[1:], PROMPT_LOGPROB, asked),
    }
    response = service_pb2.ModelInferResponse(id=asked.id, model_name=asked.model)
    for name in asked.outputs:
        datatype, content = values[name]
        response.outputs.add(name=name, datatype=datatype, shape=[len(content)])
        response.raw_output_contents.append(_raw(datatype, content))
    return response


def _told(
    prefix: str, ids: list[int], logprob: float, asked: Asked
) -> dict[str, tuple[str, list[Any]]]:
    """Tell of tokens: each itself is the likeliest, then come the ids above it."""
    ranks = range(asked.tensors.get(f"{prefix}logprobs", [0])[0])
    return {
        f"{prefix}logprobs": ("FP32", [logprob] * len(ids)),
        f"{prefix}ranks": ("INT32", [1] * len(ids)),
        f"{prefix}top_ids": ("INT32", [id_ + rank for id_ in ids for rank in ranks]),
        f"{prefix}top_bytes": ("BYTES", [_bytes(id_ + rank) for id_ in ids for rank in ranks]),
        f"{prefix}top_logprobs": ("FP32", [logprob - rank for _ in ids for rank in ranks]),
    }


def _bytes(token_id: int) -> bytes:
    return bytes([token_id]) if token_id < 256 else b""


def _raw(datatype: str, content: list[Any]) -> bytes:
    if datatype == "BYTES":
        packed = serialize_byte_tensor(np.array(content, np.object_))
        return packed.item() if packed.size else b""
    return np.array(content, NUMPY_TYPES[datatype]).tobytes()
