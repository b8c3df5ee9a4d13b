"""Plays the same requests at each load under each policy. Load 1.0 is the capacity of the machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from triton_backend.simulation.arrivals import Arrival, at_rate
from triton_backend.simulation.figures import Figures, Slo, figures_of
from triton_backend.simulation.run import Machine, play


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep."""

    policy: str
    load: float
    rate_per_s: float
    figures: Figures


@dataclass(frozen=True, slots=True)
class Grid:
    """What a sweep compares, and how it is judged."""

    policies: tuple[str, ...]
    loads: tuple[float, ...]
    capacity_per_s: float
    slo: Slo
    skip: float
    """Share of the requests at first that are not measured."""


def sweep(
    arrivals: Sequence[Arrival],
    machine: Machine,
    grid: Grid,
    *,
    on_over: Callable[[int], object],
) -> Iterator[Cell]:
    """Give a cell per load and policy, loads first; `on_over` hears of each request that is over."""
    for load in grid.loads:
        rate = load * grid.capacity_per_s
        spaced = at_rate(arrivals, rate)
        for policy in grid.policies:
            config = replace(machine.config, policy=policy)
            played = play(spaced, replace(machine, config=config), on_over=on_over)
            yield Cell(policy, load, rate, figures_of(played, grid.slo, skip=grid.skip))
