"""Hold the precision that layers got against the one that was asked for: no engine is less, or other, than it says."""

from collections import Counter
from collections.abc import Iterable, Mapping

from builder.errors import UnsupportedError
from builder.quant.plan import FLOAT32, Precision


def fallbacks(
    linear: Iterable[str], layers: Mapping[str, Precision], realized: Mapping[str, str]
) -> dict[str, str]:
    """Give the layers of another precision than their plan's, each with the name of the one that was asked for.

    `linear` are the weights of all linear layers; those that `layers` leaves out are asked for in float32.
    """
    asked = {name: layers[name].name if name in layers else FLOAT32 for name in linear}
    return {name: wanted for name, wanted in asked.items() if realized.get(name) != wanted}


def refuse_fallbacks(found: Mapping[str, str], realized: Mapping[str, str], target: str) -> None:
    """Refuse an engine whose layers fell back.

    Raises:
        UnsupportedError: some did; names the first, and how many there are of each kind.
    """
    if not found:
        return
    kinds = Counter((wanted, realized.get(name, "nothing")) for name, wanted in found.items())
    counts = ", ".join(f"{count} x {wanted} as {got}" for (wanted, got), count in kinds.items())
    raise UnsupportedError(
        f"target {target} realizes {counts}, first {next(iter(found))}; add --allow-fallback to take that, or choose "
        "another target or format"
    )
