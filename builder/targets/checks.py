"""What targets refuse in the same words: options and sizes for which they have nothing."""

from collections.abc import Sequence

from builder.artifact.config import ModelConfig
from builder.errors import UnsupportedError


def require(target: str, option: str, value: str, supported: Sequence[str]) -> None:
    """Refuse a value of an option that a target does not support.

    Raises:
        UnsupportedError: names the option, and what the target supports.
    """
    if value not in supported:
        raise UnsupportedError(
            f"target {target} does not support {option} {value}; supported: {', '.join(supported)}"
        )


def require_one_rank(target: str, tp: int) -> None:
    """Refuse several ranks.

    Raises:
        UnsupportedError: there are several.
    """
    if tp != 1:
        raise UnsupportedError(f"target {target} does not support --tp {tp} yet; supported: --tp 1")


def require_head_dim(target: str, config: ModelConfig, most: int) -> None:
    """Refuse heads of an odd size, or of more than `most`.

    Raises:
        UnsupportedError: names the size, and what the target supports.
    """
    if config.head_dim % 2 or config.head_dim > most:
        raise UnsupportedError(
            f"target {target} does not support head size {config.head_dim}; supported: even sizes up to {most}"
        )
