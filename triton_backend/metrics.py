"""What the engine tells Triton's metrics endpoint, as a table over the host's `Pong`."""

from collections.abc import Callable
from dataclasses import dataclass

from triton_backend.messages import Pong


@dataclass(frozen=True, slots=True)
class Metric:
    """One number about the engine."""

    name: str
    description: str
    value: Callable[[Pong], int]
    only_grows: bool = False
    """A counter; it starts again at 0 with each host. Otherwise a gauge."""


METRICS = (
    Metric("forerun_requests_running", "Requests that are being computed", lambda p: p.num_running),
    Metric("forerun_requests_waiting", "Requests that wait for room", lambda p: p.num_waiting),
    Metric("forerun_kv_blocks", "Blocks of the KV pool", lambda p: p.num_blocks),
    Metric("forerun_kv_blocks_used", "Blocks that requests hold", lambda p: p.num_used_blocks),
    Metric("forerun_steps_total", "Steps of the engine", lambda p: p.num_steps, only_grows=True),
    Metric(
        "forerun_generated_tokens_total",
        "Tokens of all answers",
        lambda p: p.num_generated_tokens,
        only_grows=True,
    ),
)


class Meters:
    """Sets one meter per metric, by what the host says from time to time."""

    def __init__(self, setters: dict[str, Callable[[int], None]]) -> None:
        """Take a function per metric name: it sets a gauge, or adds to a counter."""
        self._setters = setters
        self._counted: dict[str, int] = {}

    def read(self, pong: Pong) -> None:
        """Bring all meters up to date."""
        for metric in METRICS:
            value = metric.value(pong)
            if metric.only_grows:
                before = self._counted.get(metric.name, 0)
                self._counted[metric.name] = value
                # Less than before: another host, which counts from 0.
                value -= before if value >= before else 0
            self._setters[metric.name](value)
