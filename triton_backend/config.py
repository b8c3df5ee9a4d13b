"""Settings of the engine loop. None of them changes an answer."""

from dataclasses import dataclass

from builder.errors import UserError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine spends memory and time."""

    watermark: float = 0.01
    """Share of the pool kept free when admitting beside others, so that they can grow (1 block at least)."""
    num_candidates: int = 64
    """N: candidates asked of the executor per row when some row of a step is drawn at random."""

    def __post_init__(self) -> None:
        if not 0 <= self.watermark < 1:
            raise UserError(f"watermark must be a share from 0 to below 1; got {self.watermark}.")
        if self.num_candidates < 1:
            raise UserError(f"num_candidates must be at least 1; got {self.num_candidates}.")
