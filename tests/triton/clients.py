"""Clients of a served model for tests: tensors by the table of a face, a gRPC stream, and Triton's HTTP calls."""

import http.client
import json
import queue
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from triton_backend.faces import find_face

WAIT_S = 120.0
"""For one response; ten times what a busy machine was seen to take."""


def tensors(face: str, **fields: Any) -> list[InferInput]:
    """Give the input tensors of a request to a model with `face`; one value stands for a list of one."""
    types = {tensor.name: tensor.data_type for tensor in find_face(face).inputs}
    inputs = []
    for name, value in fields.items():
        values = value if isinstance(value, list | tuple) else [value]
        data_type = {"STRING": "BYTES"}.get(types[name], types[name])
        inputs.append(InferInput(name, [len(values)], data_type))
        if data_type == "BYTES":
            values = [each.encode() if isinstance(each, str) else each for each in values]
        inputs[-1].set_data_from_numpy(np.array(values, triton_to_np_dtype(data_type)))
    return inputs


class Stream:
    """One gRPC stream to a server; any number of requests may share it.

    Without the header triton_grpc_error, which brings the status of a failure: with it, Triton 2.51 has a race
    between a model's error and the end of the stream that it closes, and now and then dies of it.
    """

    def __init__(self, address: str, *, model: str, face: str) -> None:
        """Open the stream; requests go to `model`."""
        self._model = model
        self._face = face
        self._responses: queue.SimpleQueue[
            tuple[InferResult | None, InferenceServerException | None]
        ] = queue.SimpleQueue()
        self._client = InferenceServerClient(address)
        self._client.start_stream(lambda result, error: self._responses.put((result, error)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def ask(self, request_id: str = "", *, timeout_us: int | None = None, **fields: Any) -> None:
        """Send a request; the fields are tensors of the face."""
        self._client.async_stream_infer(
            self._model,
            tensors(self._face, **fields),
            request_id=request_id,
            enable_empty_final_response=True,
            timeout=timeout_us,
        )

    def next(self) -> InferResult:
        """Wait for the next response of any request.

        Raises:
            InferenceServerException: a request or the stream failed.
        """
        result, error = self._responses.get(timeout=WAIT_S)
        if error is not None:
            raise error
        assert result is not None
        return result

    def answer(self) -> list[InferResult]:
        """Wait for all responses that are not empty, of the one request that runs."""
        results = []
        while True:
            result = self.next()
            if result.get_response().outputs:
                results.append(result)
            if is_final(result):
                return results

    def cancel(self) -> None:
        """End the stream with all that runs in it."""
        self._client.stop_stream(cancel_requests=True)
        self._client.close()


def is_final(result: InferResult) -> bool:
    """Whether a response is the last of its request."""
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def text_of(results: list[InferResult], output: str = "text") -> str:
    """Join the text of responses."""
    return b"".join(result.as_numpy(output)[0] for result in results).decode()


def call(
    address: str,
    method: str,
    path: str,
    content: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Make an HTTP call, with JSON if there is content; give status and body."""
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    try:
        body = None if content is None else json.dumps(content)
        kind = {} if content is None else {"content-type": "application/json"}
        connection.request(method, path, body=body, headers={**kind, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def generate_stream(address: str, model: str, **content: Any) -> Iterator[dict[str, Any]]:
    """Call Triton's generate_stream; yield the object of each event. Closing the iterator hangs up."""
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    try:
        connection.request("POST", f"/v2/models/{model}/generate_stream", body=json.dumps(content))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while line := response.readline():
            if line.startswith(b"data:"):
                yield json.loads(line.removeprefix(b"data:"))
    finally:
        connection.close()
