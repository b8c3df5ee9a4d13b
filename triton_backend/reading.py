"""What the engine tells about itself between two steps, as the host sends it to its fronts."""

from triton_backend.engine_metrics import EngineMetrics
from triton_backend.histogram import Histogram
from triton_backend.messages import Durations, Pong
from triton_backend.reasons import WaitReason
from triton_backend.scheduler import Scheduler

COUNTERS = (
    "num_submitted",
    "num_admitted",
    "num_preemptions",
    "num_prompt_tokens",
    "num_hit_tokens",
    "num_computed_tokens",
    "num_computed_prompt_tokens",
    "num_generated_tokens",
    "num_drafted_tokens",
    "num_accepted_tokens",
    "num_steps",
)
"""Attributes of `EngineMetrics` that are numbers and only grow."""
HISTOGRAMS = ("queue_s", "ttft_s", "itl_s", "end_to_end_s")


def reading_of(metrics: EngineMetrics, scheduler: Scheduler) -> Pong:
    """Give all numbers about an engine as they are now."""
    cache = scheduler.cache
    return Pong(
        num_running=len(scheduler.running),
        num_waiting=len(scheduler.waiting),
        num_blocks=cache.pool.num_blocks - 1,
        num_used_blocks=cache.num_held,
        num_cached_blocks=cache.num_idle,
        waits_for=metrics.waits_for or WaitReason.STEP,
        counters={name: getattr(metrics, name) for name in COUNTERS},
        refused={str(reason): count for reason, count in metrics.refusals.items()},
        finished={str(reason): count for reason, count in metrics.ends.items()},
        seconds={name: _durations(getattr(metrics, name)) for name in HISTOGRAMS},
    )


def _durations(histogram: Histogram) -> Durations:
    return Durations(tuple(histogram.counts), histogram.total)
