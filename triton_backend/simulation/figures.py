"""What a run was worth: percentiles of latencies, throughput, and goodput under an SLO.

Goodput counts the requests whose whole answer came within the bounds. Requests that were refused or timed out have no
latency, and count against it. All figures are of the requests measured, and of the time since the first of them came.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from triton_backend.request import FinishReason
from triton_backend.simulation.run import Played, Served

LEVELS = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must get to count as served well."""

    ttft_s: float
    """At most so long to the first token."""
    itl_s: float
    """At most so long between tokens, on average over the answer."""

    def is_met(self, served: Served) -> bool:
        """Tell whether an answer is complete and came in time."""
        if not served.is_complete or served.ttft_s is None:
            return False
        return served.ttft_s <= self.ttft_s and (served.itl_s or 0.0) <= self.itl_s


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run; percentiles by level, in seconds, over those who got so far."""

    num_requests: int
    """Requests that were measured."""
    num_complete: int
    num_refused: int
    num_timed_out: int
    offered_per_s: float
    goodput_per_s: float
    goodput_share: float
    """Of the requests measured, those that were served within the SLO."""
    tokens_per_s: float
    ttft_s: dict[int, float]
    ttft_s_by_tenant: dict[str, dict[int, float]]
    queue_s: dict[int, float]
    itl_s: dict[int, float]
    """Of the answers' mean times between tokens."""
    longest_gap_s: dict[int, float]
    """Of the answers' longest times between tokens."""
    mean_queue_s: float
    end_to_end_s: dict[int, float]
    busy_share: float
    """Time in steps, of all time."""
    num_preemptions: int
    hit_rate: float
    """Reused tokens of all prompt tokens."""

    def as_json(self) -> dict[str, object]:
        """Give the figures as JSON takes them."""
        return asdict(self)


def figures_of(played: Played, slo: Slo, *, skip: float) -> Figures:
    """Measure a run, without the first `skip` (a share) of its requests: they met an empty engine."""
    measured = played.served[int(skip * len(played.served)) :]
    complete = [each for each in measured if each.is_complete]
    reasons = Counter(each.finish_reason for each in measured)
    good = sum(map(slo.is_met, measured))
    # Load is offered while requests arrive; what is left then is drained by an engine that empties.
    offered_s = max(measured[-1].arrival.at_s - measured[0].arrival.at_s, 1e-9)
    took_s = max(played.end_s - measured[0].arrival.at_s, 1e-9)
    queued = _known(each.queue_s for each in measured)
    records = [each.record for each in measured if each.record is not None]
    admitted = [record for record in records if record.admitted_s is not None]
    return Figures(
        num_requests=len(measured),
        num_complete=len(complete),
        num_refused=reasons[None],
        num_timed_out=reasons[FinishReason.TIMEOUT],
        offered_per_s=len(measured) / offered_s,
        goodput_per_s=good / took_s,
        goodput_share=good / len(measured),
        tokens_per_s=sum(each.num_tokens for each in measured) / took_s,
        ttft_s=percentiles(_known(each.ttft_s for each in measured)),
        ttft_s_by_tenant={
            tenant: percentiles(
                _known(each.ttft_s for each in measured if each.arrival.tenant == tenant)
            )
            for tenant in sorted({each.arrival.tenant for each in measured})
        },
        queue_s=percentiles(queued),
        itl_s=percentiles(_known(each.itl_s for each in complete)),
        longest_gap_s=percentiles([each.longest_gap_s for each in complete]),
        mean_queue_s=sum(queued) / max(1, len(queued)),
        end_to_end_s=percentiles(
            [each.last_s - each.arrival.at_s for each in complete if each.last_s is not None]
        ),
        busy_share=(played.busy_s - measured[0].busy_before_s) / took_s,
        num_preemptions=sum(record.num_preemptions for record in records),
        hit_rate=sum(record.num_cached_tokens for record in admitted)
        / max(1, sum(record.num_prompt_tokens for record in admitted)),
    )


def percentiles(values: Iterable[float]) -> dict[int, float]:
    """Give the value that each level's share of all values does not exceed; none of no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {level: ordered[ceil(level / 100 * len(ordered)) - 1] for level in LEVELS}


def _known(values: Iterable[float | None]) -> Sequence[float]:
    return [value for value in values if value is not None]
