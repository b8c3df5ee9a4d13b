"""What the engine tells Triton's metrics endpoint, as a table over the host's `Pong`.

Histograms are published as Prometheus reads them, in counters `_bucket`, `_sum` and `_count`: Triton's own kind takes
single values only, and what comes from the host is sums.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from triton_backend.histogram import (
    END_TO_END_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    INTER_TOKEN_BOUNDS_S,
    QUEUE_BOUNDS_S,
)
from triton_backend.messages import Durations, Pong
from triton_backend.reasons import Refusal, WaitReason
from triton_backend.request import FinishReason


@dataclass(frozen=True, slots=True)
class Metric:
    """One number about the engine."""

    name: str
    description: str
    value: Callable[[Pong], float]
    only_grows: bool = False
    """A counter; it starts again at 0 with each host. Otherwise a gauge."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Besides those of the model; name and labels together are unique."""

    @property
    def series(self) -> str:
        """Name and labels, as the endpoint writes them."""
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.name}{{{labels}}}" if labels else self.name


GAUGES: tuple[tuple[str, str, Callable[[Pong], float]], ...] = (
    ("requests_running", "Answers that are being computed", lambda pong: pong.num_running),
    ("kv_blocks", "Blocks of the KV pool", lambda pong: pong.num_blocks),
    ("kv_blocks_used", "Blocks that answers hold", lambda pong: pong.num_used_blocks),
    (
        "kv_blocks_cached",
        "Blocks that nobody holds and whose content can be reused",
        lambda pong: pong.num_cached_blocks,
    ),
    (
        "kv_blocks_free",
        "Blocks that nobody holds and that hold nothing of use",
        lambda pong: pong.num_blocks - pong.num_used_blocks - pong.num_cached_blocks,
    ),
)
COUNTERS = (
    ("requests_submitted", "num_submitted", "Answers that were taken (n of a request with n)"),
    ("requests_admitted", "num_admitted", "Answers that left the queue for the first time"),
    ("preemptions", "num_preemptions", "Times that an answer lost its blocks to older ones"),
    ("prompt_tokens", "num_prompt_tokens", "Tokens of the prompts of admitted answers"),
    ("hit_tokens", "num_hit_tokens", "Prompt tokens reused instead of computed"),
    (
        "computed_tokens",
        "num_computed_tokens",
        "Tokens computed: prompts, answers, drafts, repeats",
    ),
    (
        "computed_prompt_tokens",
        "num_computed_prompt_tokens",
        "Prompt tokens computed, with repeats",
    ),
    ("generated_tokens", "num_generated_tokens", "Tokens of all answers"),
    ("drafted_tokens", "num_drafted_tokens", "Tokens that were guessed ahead"),
    ("accepted_tokens", "num_accepted_tokens", "Guesses that were right"),
    ("steps", "num_steps", "Steps of the engine"),
)
HISTOGRAMS = (
    ("queue", "queue_s", QUEUE_BOUNDS_S, "Seconds from submit to first admission"),
    ("time_to_first_token", "ttft_s", FIRST_TOKEN_BOUNDS_S, "Seconds from submit to first token"),
    ("inter_token", "itl_s", INTER_TOKEN_BOUNDS_S, "Seconds between steps that brought tokens"),
    (
        "end_to_end",
        "end_to_end_s",
        END_TO_END_BOUNDS_S,
        "Seconds from submit to end, of answers that ended by stop or length",
    ),
)


def _metrics() -> Iterator[Metric]:
    """Give the whole table."""
    for name, description, value in GAUGES:
        yield Metric(f"forerun_{name}", description, value)
    for wait in WaitReason:
        yield _waiting(wait)
    for name, key, description in COUNTERS:
        yield _counted(f"forerun_{name}_total", key, description)
    for refusal in Refusal:
        yield _refused(refusal)
    for reason in FinishReason:
        yield _finished(reason)
    for name, key, bounds, description in HISTOGRAMS:
        yield from _histogram(f"forerun_{name}_seconds", key, bounds, description)


def _waiting(reason: str) -> Metric:
    return Metric(
        "forerun_requests_waiting",
        "Answers that wait, by what for",
        lambda pong: pong.num_waiting if pong.waits_for == reason else 0,
        labels={"reason": reason},
    )


def _counter(name: str, description: str, value: Callable[[Pong], float], **labels: str) -> Metric:
    return Metric(name, description, value, only_grows=True, labels=labels)


def _counted(name: str, key: str, description: str) -> Metric:
    return _counter(name, description, lambda pong: pong.counters.get(key, 0))


def _refused(reason: str) -> Metric:
    return _counter(
        "forerun_requests_refused_total",
        "Requests that were not taken, by reason",
        lambda pong: pong.refused.get(reason, 0),
        reason=reason,
    )


def _finished(reason: str) -> Metric:
    return _counter(
        "forerun_requests_finished_total",
        "Answers that are over, by reason",
        lambda pong: pong.finished.get(reason, 0),
        reason=reason,
    )


def _histogram(name: str, key: str, bounds: Iterable[float], description: str) -> Iterator[Metric]:
    """Give the counters of a histogram: one per bucket with all below it, their sum, and how many there are."""
    nothing = Durations((), 0.0)

    def below(end: int) -> Callable[[Pong], float]:
        return lambda pong: sum(pong.seconds.get(key, nothing).counts[:end])

    for end, bound in enumerate([*map(str, bounds), "+Inf"], start=1):
        yield _counter(f"{name}_bucket", description, below(end), le=bound)
    yield _counter(f"{name}_sum", description, lambda pong: pong.seconds.get(key, nothing).total)
    yield _counter(
        f"{name}_count", description, lambda pong: sum(pong.seconds.get(key, nothing).counts)
    )


METRICS = tuple(_metrics())


class Meters:
    """Sets meters by what the host says from time to time."""

    def __init__(self, setters: Mapping[str, Callable[[float], None]]) -> None:
        """Take a function per series that is told: it sets a gauge, or adds to a counter."""
        self._setters = [(each, setters[each.series]) for each in METRICS if each.series in setters]
        self._told: dict[str, float] = {}

    def read(self, pong: Pong) -> None:
        """Bring all meters up to date; those that did not change cost nothing."""
        for metric, change in self._setters:
            value = metric.value(pong)
            before = self._told.get(metric.series)
            if value == before:
                continue
            self._told[metric.series] = value
            if metric.only_grows and before is not None and value >= before:
                value -= before
            # Otherwise a gauge, a first value, or another host, which counts from 0.
            change(value)
