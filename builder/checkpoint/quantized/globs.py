"""Names and shell patterns by which modelopt's configs list layers, bounded so that no list takes for ever to match."""

import re
from collections.abc import Sequence
from fnmatch import translate

from builder.checkpoint.quantized.patterns import MAX_PATTERN, MAX_PATTERNS, MAX_REPEATS
from builder.errors import UnsupportedError

MAX_GLOBS, MAX_LENGTH, MAX_STARS = MAX_PATTERNS, MAX_PATTERN, MAX_REPEATS
WILD = frozenset("*?[")


class Globs:
    """A list of names and patterns.

    Raises:
        UnsupportedError: there are too many patterns, or one is too involved.
    """

    def __init__(self, listed: Sequence[str]) -> None:
        self._whole = {name for name in listed if not WILD & set(name)}
        wild = sorted(set(listed) - self._whole)
        involved = [name for name in wild if len(name) > MAX_LENGTH or name.count("*") > MAX_STARS]
        if involved or len(wild) > MAX_GLOBS:
            what = f"{involved[0][:60]!a}" if involved else f"{len(wild)} patterns"
            raise UnsupportedError(
                f"quantization_config lists {what}, too much to be matched safely; supported are {MAX_GLOBS} patterns of "
                f"{MAX_LENGTH} letters and {MAX_STARS} stars"
            )
        self._patterns = [re.compile(translate(name)) for name in wild]

    def name(self, layer: str) -> bool:
        """Tell whether a layer is listed by its own name or by a pattern."""
        return layer in self._whole or any(each.match(layer) for each in self._patterns)
