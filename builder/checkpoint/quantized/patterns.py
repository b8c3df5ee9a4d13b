"""Which layers a list of compressed-tensors names: whole names, `re:` and a pattern of their beginning, or a class."""

import re
from collections.abc import Sequence

from builder.errors import UnsupportedError

PREFIX = "re:"
LINEAR = "Linear"
MAX_PATTERNS, MAX_PATTERN, MAX_REPEATS, MAX_LAYER = 1000, 200, 4, 128
"""Together they bound the tries of a match; names of layers have some 40 letters, and patterns two repeats."""
REPEATS = re.compile(r"(?<!\\)[*+{]")
HOSTILE = re.compile(r"\)[*+?{]|\\\d|\(\?")
"""Groups that are repeated, references and look-arounds: a pattern with them may take for ever."""


class Names:
    """A list of names and patterns."""

    def __init__(self, listed: Sequence[str], where: str) -> None:
        self._whole = {name for name in listed if not name.startswith(PREFIX)}
        patterns = sorted(set(listed) - self._whole)
        if len(patterns) > MAX_PATTERNS:
            raise UnsupportedError(
                f"quantization_config: {where} has {len(patterns)} patterns; supported are {MAX_PATTERNS}"
            )
        self._patterns = [_compiled(name, where) for name in patterns]

    @property
    def has_linear(self) -> bool:
        """Whether all linear layers are meant."""
        return LINEAR in self._whole

    def name(self, layer: str) -> bool:
        """Tell whether a layer is listed by its own name or by a pattern.

        Raises:
            UnsupportedError: its name is too long to be matched.
        """
        if layer in self._whole:
            return True
        if self._patterns and len(layer) > MAX_LAYER:
            raise UnsupportedError(
                f"tensor {layer[:60]!a}... has a name of more than {MAX_LAYER} letters, which is not matched with the "
                "patterns of quantization_config"
            )
        return any(pattern.match(layer) for pattern in self._patterns)


def _compiled(listed: str, where: str) -> re.Pattern[str]:
    pattern = listed.removeprefix(PREFIX)
    is_long = len(pattern) > MAX_PATTERN or len(REPEATS.findall(pattern)) > MAX_REPEATS
    if is_long or HOSTILE.search(pattern):
        raise UnsupportedError(
            f"quantization_config: {where} has a pattern that is too involved to be matched safely: {pattern[:60]!a}"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise UnsupportedError(
            f"quantization_config: {where} has {pattern[:60]!a}, which is no regular expression: {error}"
        ) from error
