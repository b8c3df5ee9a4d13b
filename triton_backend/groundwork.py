"""What the choices of a request share: made of it once, ahead of the engine's thread, and never changed.

A request may have 128 choices. Whatever costs time by the length of its prompt, its stop strings or its constraint is
made here; a choice adds no more than its own place in it.
"""

from dataclasses import dataclass

from triton_backend.drafting import PromptRuns
from triton_backend.occurrences import Int32
from triton_backend.stops import StopStrings
from triton_backend.structured.mask import CompiledConstraint


@dataclass(frozen=True, slots=True, eq=False)
class Groundwork:
    """Any thread may make it and read it."""

    prompt: bytes
    """The prompt's ids as C integers of 4 bytes, which a sequence copies at once."""
    opens_text: bool
    """No token of the prompt gives text: the answer's first one opens it."""
    stops: StopStrings
    constraint: CompiledConstraint | None = None
    prompt_runs: PromptRuns | None = None
    """None if nothing is drafted."""
    prompt_ids: Int32 | None = None
    """The ids that the prompt has, each once; None without penalties."""
