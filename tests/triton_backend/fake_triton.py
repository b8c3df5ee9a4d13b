"""Triton's side of a Python model, played by the tests: requests, senders, responses, errors and meters."""

from typing import Any, ClassVar

from triton_backend.protocol import Array

FINAL = 1


class FakeTensor:
    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class FakeResponse:
    """What Triton's Python backend calls it; `parameters` came in with servers for numpy 2."""

    def __init__(self, output_tensors: Any = (), error: Any = None) -> None:
        """__init__(self, output_tensors: List[Tensor] = [], error: TritonError = None)"""
        self.tensors = {tensor.name(): tensor.as_numpy().tolist() for tensor in output_tensors}
        self.error = error


class FakeError:
    INVALID_ARG, UNAVAILABLE, INTERNAL, CANCELLED = range(4)

    def __init__(self, message: str, code: int) -> None:
        self.message, self.code = message, code


class FakeMeter:
    def __init__(self) -> None:
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value

    def increment(self, value: int) -> None:
        assert value >= 0
        self.value += value


class FakeFamily:
    """Triton's metric families; `made` has all meters, by name."""

    COUNTER, GAUGE = "counter", "gauge"
    made: ClassVar[dict[str, tuple[str, dict[str, str], FakeMeter]]] = {}

    def __init__(self, *, name: str, description: str, kind: str) -> None:
        assert description
        self._name, self._kind = name, kind

    def Metric(self, *, labels: dict[str, str]) -> FakeMeter:  # noqa: N802 - as Triton spells it
        meter = FakeMeter()
        self.made[self._name] = (self._kind, labels, meter)
        return meter


class FakeSender:
    def __init__(self) -> None:
        self.sent: list[tuple[FakeResponse, int]] = []
        self.num_questions = 0
        self.has_left = False

    def send(self, response: FakeResponse, flags: int) -> None:
        assert not any(flag for _, flag in self.sent), "a response after the last"
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        assert not any(flag for _, flag in self.sent), "Triton has forgotten the request"
        self.num_questions += 1
        return self.has_left

    @property
    def is_over(self) -> bool:
        return any(flag for _, flag in self.sent)


class FakeRequest:
    def __init__(self, *, parameters: str = "", timeout_us: int = 0, **tensors: Array) -> None:
        self.sender = FakeSender()
        self._tensors = [FakeTensor(name, array) for name, array in tensors.items()]
        self._parameters = parameters
        self._timeout_us = timeout_us

    def get_response_sender(self) -> FakeSender:
        return self.sender

    def inputs(self) -> list[FakeTensor]:
        return self._tensors

    def parameters(self) -> str:
        return self._parameters

    def request_id(self) -> str:
        return "r1"

    def timeout(self) -> int:
        return self._timeout_us

    def requested_output_names(self) -> set[str]:
        return {"text", "finish_reason"}
