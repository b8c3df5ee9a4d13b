"""Plays arrivals into the engine that also serves, on an executor that only lets time pass.

Queues, admission, preemption, reuse, deadlines and refusals are the engine's own: nothing of them is modelled here.
Like a real client, a request waits for the step in progress before the engine hears of it, and times are measured
from its arrival.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from builder.artifact.config import Limits
from builder.errors import EngineError, QueueFullError, RequestError, UserError
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.engine_metrics import EngineMetrics
from triton_backend.request import FinishReason, Request, SamplingParams
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.cost import CostModel, VirtualClock
from triton_backend.simulation.executor import END_ID, VOCAB_SIZE, CountdownExecutor
from triton_backend.timeline import RequestRecord

FILLER = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """What is simulated."""

    limits: Limits
    block_size: int
    cost: CostModel
    config: EngineConfig
    lengths_known: bool = True
    """Requests say how long their answers will be (`max_tokens`); otherwise only the end shows it."""
    deadline_s: float | None = None
    """Time that each request has from its arrival."""


@dataclass(slots=True)
class Served:
    """What became of one request; times are None where it did not get so far."""

    arrival: Arrival
    busy_before_s: float = 0.0
    """Time spent in steps before it came."""
    finish_reason: FinishReason | None = None
    """None: it was refused."""
    record: RequestRecord | None = None
    """What the engine wrote down of it."""
    num_tokens: int = 0
    first_s: float | None = None
    last_s: float | None = None
    num_deliveries: int = 0
    longest_gap_s: float = 0.0
    """The longest time between two deliveries of tokens."""

    @property
    def is_complete(self) -> bool:
        """Whether the whole answer came."""
        return self.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_s is None else self.first_s - self.arrival.at_s

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival to the first admission."""
        if self.record is None or self.record.admitted_s is None:
            return None
        return self.record.admitted_s - self.arrival.at_s

    @property
    def itl_s(self) -> float | None:
        """Mean seconds between deliveries; None when there were fewer than two."""
        if self.num_deliveries < 2 or self.first_s is None or self.last_s is None:
            return None
        return (self.last_s - self.first_s) / (self.num_deliveries - 1)


@dataclass(frozen=True, slots=True)
class Played:
    """A whole run: every arrival's fate in order, and what the engine counted."""

    served: list[Served]
    metrics: EngineMetrics
    busy_s: float
    """Time spent in steps."""
    end_s: float
    """When the last request was over."""


def play(
    arrivals: Sequence[Arrival], machine: Machine, *, on_over: Callable[[int], object] = lambda _: 0
) -> Played:
    """Play arrivals, in order of time, until the last one is over; `on_over` hears of each that is.

    Raises:
        UserError: a request could never be served on this machine; it is named.
        EngineError: the engine made a step that served nobody.
    """
    clock = VirtualClock()
    executor = CountdownExecutor(
        machine.limits, block_size=machine.block_size, cost=machine.cost, clock=clock
    )
    engine = Engine(
        executor,
        end_token_ids=(END_ID,),
        draw_seed=lambda: 0,
        config=machine.config,
        clock=clock,
    )
    served = [Served(arrival) for arrival in arrivals]

    def keep(record: RequestRecord) -> None:
        served[int(record.request_id)].record = record

    engine.metrics.on_record = keep
    prompts = PromptWriter()
    for index, arrival in enumerate(arrivals):
        while engine.has_work and clock() < arrival.at_s:
            _step(engine, clock, served, on_over)
        clock.wait_until(arrival.at_s)
        served[index].busy_before_s = executor.busy_s
        try:
            engine.submit(_request(index, arrival, prompts.write(arrival), machine))
        except QueueFullError:
            on_over(1)
        except RequestError as error:
            raise UserError(f"{arrival.place or f'request {index + 1}'}: {error}") from error
    while engine.has_work:
        _step(engine, clock, served, on_over)
    return Played(served, engine.metrics, executor.busy_s, clock())


def _step(
    engine: Engine,
    clock: VirtualClock,
    served: Sequence[Served],
    on_over: Callable[[int], object],
) -> None:
    """Make one step, and note what it brought to whom."""
    before = clock()
    deltas = engine.step()
    now = clock()
    if now <= before and not deltas:
        raise EngineError("the simulated engine has work, and a step served nobody")
    for delta in deltas:
        each = served[int(delta.request_id)]
        if delta.token_ids:
            each.longest_gap_s = max(each.longest_gap_s, now - (each.last_s or now))
            each.first_s = now if each.first_s is None else each.first_s
            each.last_s = now
            each.num_deliveries += 1
            each.num_tokens += len(delta.token_ids)
        if delta.finish_reason is not None:
            each.finish_reason = delta.finish_reason
            on_over(1)


def _request(index: int, arrival: Arrival, prompt: tuple[int, ...], machine: Machine) -> Request:
    return Request(
        str(index),
        prompt,
        SamplingParams(
            temperature=0, max_tokens=arrival.num_answer if machine.lengths_known else None
        ),
        priority=arrival.priority,
        tenant=arrival.tenant,
        deadline_s=None if machine.deadline_s is None else arrival.at_s + machine.deadline_s,
    )


class PromptWriter:
    """Writes prompts that begin alike where they share a prefix, and nowhere else."""

    def __init__(self) -> None:
        self._next_id = VOCAB_SIZE - 1
        self._prefixes: dict[str, int] = {}

    def write(self, arrival: Arrival) -> tuple[int, ...]:
        """Give a prompt whose last token makes the model answer with the arrival's length."""
        prompt = [FILLER] * arrival.num_prompt
        if arrival.num_prefix:
            if arrival.prefix not in self._prefixes:
                self._prefixes[arrival.prefix] = self._fresh_id()
            prompt[0] = self._prefixes[arrival.prefix]
        prompt[arrival.num_prefix] = self._fresh_id()
        prompt[-1] = arrival.num_answer
        return tuple(prompt)

    def _fresh_id(self) -> int:
        self._next_id -= 1
        return self._next_id
