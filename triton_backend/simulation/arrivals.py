"""Who comes when, with how long a prompt and how long an answer: drawn here, or read from a trace.

Times are seconds, lengths are tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from builder.errors import UserError
from triton_backend.simulation.lengths import Lengths

MAX_REQUESTS = 1_000_000
MIN_SPAN_S = 1e-6
MAX_SPAN_S = 1e9
"""30 years. A clock of doubles tells microseconds up to here, and no step is shorter."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that will come."""

    at_s: float
    num_prompt: int
    num_answer: int
    tenant: str = ""
    priority: int = 0
    prefix: str = ""
    """Names what its prompt begins with; requests of the same prefix share its tokens."""
    num_prefix: int = 0
    """Tokens of the prefix, of the prompt's."""
    place: str = field(default="", compare=False)
    """Where it was read, for messages."""


def draw_arrivals(
    count: int,
    *,
    prompt: Lengths,
    answer: Lengths,
    max_seq_len: int,
    seed: int,
    num_tenants: int = 1,
) -> list[Arrival]:
    """Draw a Poisson stream of one request a second on average; see `at_rate`.

    Prompts leave room for one token at least, answers fit behind them. One seed gives one stream: the same lengths
    and the same spacing at every rate, so that rates and policies are compared on the same requests. Of the tenants,
    the n-th has an n-th of the first one's requests.
    """
    random = Random(seed)  # noqa: S311 - nothing secret is drawn
    # A generator of its own, so that the number of tenants changes nothing else.
    tenants = Random(seed).choices(  # noqa: S311
        [str(number) for number in range(1, num_tenants + 1)],
        [1 / number for number in range(1, num_tenants + 1)],
        k=count,
    )
    arrivals, now = [], 0.0
    for tenant in tenants:
        now += random.expovariate(1.0)
        num_prompt = prompt.draw(random, max_seq_len - 1)
        num_answer = answer.draw(random, max_seq_len - num_prompt)
        arrivals.append(Arrival(now, num_prompt, num_answer, tenant=tenant))
    return arrivals


def at_rate(arrivals: Sequence[Arrival], per_s: float) -> list[Arrival]:
    """Stretch or squeeze time so that so many requests come per second on average; the first comes at 0 s.

    Raises:
        UserError: they have no rate, or would come over more time than the clock can tell apart.
    """
    first_s, factor = arrivals[0].at_s, mean_rate(arrivals) / per_s
    span_s = (arrivals[-1].at_s - first_s) * factor
    if span_s > MAX_SPAN_S:
        raise UserError(
            f"at {per_s:g} requests/s, {len(arrivals)} requests take {span_s:g} s to come;"
            f" at most {MAX_SPAN_S:g} s can be simulated"
        )
    return [replace(arrival, at_s=(arrival.at_s - first_s) * factor) for arrival in arrivals]


def mean_rate(arrivals: Sequence[Arrival]) -> float:
    """Give the requests per second from the first to the last, whenever the first comes.

    Raises:
        UserError: all come at once.
    """
    span_s = arrivals[-1].at_s - arrivals[0].at_s
    if span_s < MIN_SPAN_S:
        raise UserError(
            "all requests come at once, so they have no rate to change; a trace needs two times at least"
        )
    return (len(arrivals) - 1) / span_s
