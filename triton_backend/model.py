"""What Triton's Python backend runs: a shell around the front, and the only file that knows `pb_utils`.

Each process of the backend runs one model, which is one face of a deployment.
"""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from builder.errors import ForerunError, UserError
from triton_backend.attach import HostDoor, find_place
from triton_backend.faces import find_face
from triton_backend.failures import log_failure
from triton_backend.front import Front
from triton_backend.front_settings import read_settings
from triton_backend.metrics import METRICS, Meters, Metric
from triton_backend.protocol import Array
from triton_backend.responder import Failure, FailureKind
from triton_backend.tenancy import named_secret

logger = logging.getLogger(__name__)

# pb_utils is complete only after this module was imported, so what is in it is named here and looked up later.
CODES = {
    FailureKind.INVALID: "INVALID_ARG",
    FailureKind.UNAVAILABLE: "UNAVAILABLE",
    FailureKind.TIMEOUT: "UNAVAILABLE",  # Triton has none for it, and gives its own timeouts this one
    FailureKind.INTERNAL: "INTERNAL",
    FailureKind.CANCELLED: "CANCELLED",
}
TELLING_FACE = "forerun"
"""Models of a deployment share one engine, and each has one of this face: it alone tells of it, or sums would double."""
HANGS_S = 10
WATCH_S = 0.5
BROKEN = Failure(FailureKind.INTERNAL, "the front failed to take the request.")


class TritonPythonModel:
    """One face of a deployment."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Join the engine host and wait until its engine is loaded.

        Raises:
            TritonModelException: the model can't be served; its one line says why.
        """
        name = args["model_name"]
        logging.basicConfig(level=logging.INFO, format=f"%(levelname)s front {name}: %(message)s")
        try:
            refuse_other_numpy(np.__version__, pb_utils.InferenceResponse.__init__.__doc__ or "")
            config = json.loads(args["model_config"])
            settings = read_settings(
                {key: value["string_value"] for key, value in config["parameters"].items()}
            )
            face = find_face(settings.face)
            server = os.getppid()
            secret = named_secret(os.environ)  # noqa: TID251 (a path alone; no answer depends on it)
            place = find_place(settings, server=str(server), secret=secret)
            door = HostDoor(place, settings.face)
            labels = {"model": name, "deployment": settings.deployment}
            told = METRICS if settings.face == TELLING_FACE else ()
            meters = Meters({metric.series: TritonMeter(metric, labels) for metric in told})
            self._front = Front(face, door, clock=time.monotonic, on_pong=meters.read)
            threading.Thread(target=end_with, args=(server,), daemon=True).start()
            self._front.start()
        except (ForerunError, OSError) as error:
            raise pb_utils.TritonModelException(f"{name} can't be served: {error}") from None

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their responses come later, and nothing is ever raised to Triton."""
        for request in requests:
            call = TritonCall(request)
            try:
                self._front.take(call)
            except Exception as error:  # noqa: BLE001 - Triton would send the traceback to the client
                log_failure(logger, "a request was not taken", error)
                call.fail(BROKEN)

    def is_ready(self) -> bool:
        """Tell newer servers whether the engine host is there."""
        return self._front.is_ready()

    def finalize(self) -> None:
        """Leave the engine host."""
        self._front.close()


class TritonCall:
    """A request of Triton's, and its response sender (a `Call`).

    After the last response Triton forgets the request, and asking about it would touch freed memory; so the
    lock keeps questions and responses apart.
    """

    def __init__(self, request: Any) -> None:
        self._request = request
        self._sender = request.get_response_sender()
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def tensors(self) -> dict[str, Array]:
        return {tensor.name(): tensor.as_numpy() for tensor in self._request.inputs()}

    @property
    def parameters(self) -> dict[str, object]:
        parameters: dict[str, object] = json.loads(self._request.parameters() or "{}")
        return parameters

    @property
    def request_id(self) -> str:
        return str(self._request.request_id())

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self._request.requested_output_names())

    @property
    def timeout_s(self) -> float | None:
        return self._request.timeout() / 1e6 or None

    def is_cancelled(self) -> bool:
        with self._lock:
            return not self._is_over and bool(self._sender.is_cancelled())

    def respond(self, tensors: Mapping[str, Array], *, is_last: bool) -> None:
        response = pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in tensors.items()]
        )
        self._send(response, is_last=is_last)

    def fail(self, failure: Failure) -> None:
        # A gRPC stream loses the code, so the message begins with the kind. (The header triton_grpc_error
        # keeps it, but then an error can end the whole server: 2.51 died within 2 to 10,000 of them.)
        error = pb_utils.TritonError(
            f"{failure.kind}: {failure.message}", getattr(pb_utils.TritonError, CODES[failure.kind])
        )
        self._send(pb_utils.InferenceResponse(error=error), is_last=True)

    def _send(self, response: Any, *, is_last: bool) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = is_last
                final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                self._sender.send(response, flags=final if is_last else 0)


class TritonMeter:
    """A meter of Triton's, which ends with its family: both are kept here."""

    def __init__(self, metric: Metric, labels: Mapping[str, str]) -> None:
        self._server = os.getppid()
        families = pb_utils.MetricFamily
        kind = families.COUNTER if metric.only_grows else families.GAUGE
        self._family = families(name=metric.name, description=metric.description, kind=kind)
        meter = self._family.Metric(labels={**labels, **metric.labels})
        self._change = meter.increment if metric.only_grows else meter.set

    def __call__(self, value: float) -> None:
        """Set a gauge, or add to a counter.

        Under a server that was killed the call never returns, and lets no Python thread run meanwhile: only the
        kernel can end this process then. That is what an alarm does that nobody handles.
        """
        if os.getppid() != self._server:
            return
        signal.alarm(HANGS_S)
        try:
            self._change(value)
        finally:
            signal.alarm(0)


def end_with(server: int) -> None:
    """End this process when the server has. It would itself, but not while one of its calls waits for an answer."""
    while os.getppid() == server:
        time.sleep(WATCH_S)
    os._exit(1)


def refuse_other_numpy(version: str, response_signature: str) -> None:
    """Refuse numpy 2 under a server whose Python backend was built for numpy 1.

    There, integers would arrive wrong without any error, and a string would end the process. That it can't give
    parameters to a response tells such a server: both came within weeks.

    Raises:
        UserError: says what to install.
    """
    if int(version.partition(".")[0]) >= 2 and "parameters" not in response_signature:
        raise UserError(
            f"this Triton server needs numpy 1, and {version} is installed; run pip install 'numpy<2' in "
            "the environment that the server runs in, or use a server of 2025 or later"
        )
