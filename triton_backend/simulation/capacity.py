"""How many requests a second a machine can serve at most: the load 1.0 of a simulation."""

from collections.abc import Sequence
from dataclasses import replace

from triton_backend.config import EngineConfig
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.run import Machine, play

EDGE = 0.1
"""Of the answers, those left out at either end, where the batch fills up and runs empty."""


def find_capacity(arrivals: Sequence[Arrival], machine: Machine) -> float:
    """Give the requests per second that are completed when all have arrived already.

    First come, first served, without bounds on the queue: so it is the same for each policy.

    Raises:
        UserError: one of the requests does not fit the machine.
    """
    config = EngineConfig(
        watermark=machine.config.watermark,
        max_waiting=len(arrivals),
        max_chunk_tokens=machine.config.max_chunk_tokens,
        prefix_reuse=machine.config.prefix_reuse,
    )
    patient = replace(machine, config=config, deadline_s=None)
    played = play([replace(arrival, at_s=0.0) for arrival in arrivals], patient)
    ends = sorted(each.last_s for each in played.served if each.is_complete and each.last_s)
    edge = int(EDGE * len(ends))
    first, last = ends[edge], ends[-1 - edge]
    if last <= first:  # too few to leave any out
        return len(ends) / ends[-1]
    return (len(ends) - 1 - 2 * edge) / (last - first)
