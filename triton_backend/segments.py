"""A prompt as typed segments: control strings stand for one token each, text is only ever text.

`ControlStrings` finds the control strings of a vocabulary in text. It knows no token ids.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class SegmentKind(StrEnum):
    """What the characters of a segment mean."""

    CONTROL = "control"
    """The spelling of one control token."""
    TEXT = "text"
    """Plain text, also where it spells a control token."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt."""

    kind: SegmentKind
    text: str = field(repr=False)


class ControlStrings:
    """A fixed set of strings to be found in text, where the longest one at a position counts."""

    def __init__(self, strings: Iterable[str]) -> None:
        """Take the control strings of a vocabulary; empty ones are left out."""
        self._strings = frozenset(strings) - {""}
        lengths: dict[str, set[int]] = {}
        for string in self._strings:
            lengths.setdefault(string[0], set()).add(len(string))
        # A vocabulary may hold thousands ("<unused0>", ...): trying the few lengths that a first
        # character has costs less than an alternation of them all.
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = (
            re.compile("[" + re.escape("".join(sorted(lengths))) + "]") if lengths else None
        )
        self._forward = sorted(self._strings)
        self._backward = sorted(string[::-1] for string in self._strings)
        self._last = {string[-1] for string in self._strings}
        self._longest = max(map(len, self._strings), default=0)

    def found_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the interval of the longest control string at each position that begins one."""
        if self._first is None:
            return
        for candidate in self._first.finditer(text):
            start = candidate.start()
            for length in self._lengths[text[start]]:
                if text[start : start + length] in self._strings:
                    yield start, start + length
                    break

    def split(self, text: str) -> list[Segment]:
        """Cut `text` into control and text segments, leftmost first, without empty ones."""
        segments = []
        done = 0
        for start, end in self.found_in(text):
            if start < done:
                continue
            if start > done:
                segments.append(Segment(SegmentKind.TEXT, text[done:start]))
            segments.append(Segment(SegmentKind.CONTROL, text[start:end]))
            done = end
        if done < len(text):
            segments.append(Segment(SegmentKind.TEXT, text[done:]))
        return segments

    def broken(self, text: str, sentinel: str) -> str:
        """Put `sentinel` into `text` so that none of its characters can be part of a control string.

        That is inside each control string, and inside an end or a beginning of `text` that the text
        next to it could complete to one.
        """
        places = {start + 1 for start, _ in self.found_in(text)}
        for length in range(1, min(len(text), self._longest - 1) + 1):
            if text[-length] in self._lengths and _begins(self._forward, text[-length:]):
                places.add(len(text) - length + 1)
            if text[length - 1] in self._last and _begins(self._backward, text[length - 1 :: -1]):
                places.add(length - 1)
        if not places:
            return text
        cuts = [0, *sorted(places), len(text)]
        return sentinel.join(text[a:b] for a, b in pairwise(cuts))


def _begins(ordered: list[str], prefix: str) -> bool:
    """Whether one of the `ordered` strings is longer than `prefix` and begins with it."""
    place = bisect_left(ordered, prefix + "\0")
    return place < len(ordered) and ordered[place].startswith(prefix)
