"""A prompt as typed segments: control strings stand for one token each, text is only ever text.

`ControlStrings` finds the control strings of a vocabulary in text. It knows no token ids.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, pairwise, takewhile

MAX_SEGMENTS = 1 << 17
"""Of one prompt: 30,000 turns of a chat. Reading more would keep others waiting, and nobody writes them."""


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
        self._pattern = re.compile(_longest_of(sorted(self._strings))) if self._strings else None
        self._forward = sorted(self._strings)
        self._backward = sorted(string[::-1] for string in self._strings)
        self._first = {string[0] for string in self._strings}
        self._last = {string[-1] for string in self._strings}
        self._longest = max(map(len, self._strings), default=0)

    def found_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the interval of the longest control string at each position that begins one."""
        found = self._pattern.search(text) if self._pattern else None
        while self._pattern and found:
            yield found.span()
            found = self._pattern.search(text, found.start() + 1)

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
            if text[-length] in self._first and _begins(self._forward, text[-length:]):
                places.add(len(text) - length + 1)
            if text[length - 1] in self._last and _begins(self._backward, text[length - 1 :: -1]):
                places.add(length - 1)
        if not places:
            return text
        cuts = [0, *sorted(places), len(text)]
        return sentinel.join(text[a:b] for a, b in pairwise(cuts))


def _longest_of(strings: Sequence[str]) -> str:
    """Give a pattern for the longest of the sorted `strings` at a place.

    It is a tree: a vocabulary may hold thousands ("<unused0>", ...), and an alternation of them all
    would try each at every "<".
    """
    ends = zip(strings[0], strings[-1], strict=False)
    shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    rests = [string[len(shared) :] for string in strings]
    branches = [_longest_of(list(each)) for _, each in groupby(filter(None, rests), lambda s: s[0])]
    tree = f"(?:{'|'.join(branches)})" if branches else ""
    return re.escape(shared) + (tree + "?" if tree and "" in rests else tree)


def _begins(ordered: list[str], prefix: str) -> bool:
    """Whether one of the `ordered` strings is longer than `prefix` and begins with it."""
    place = bisect_left(ordered, prefix + "\0")
    return place < len(ordered) and ordered[place].startswith(prefix)
