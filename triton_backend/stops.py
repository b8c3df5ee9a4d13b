"""Stop strings in a text that comes in pieces.

After each piece, if any stop string occurs in the text so far, the text is cut where the leftmost occurrence
begins: the lowest `text.find(stop)` of all stops. Until then, exactly the longest end of the text that
is the beginning of a stop string is held back, and everything before it is given at once.
"""

from collections.abc import Sequence

from builder.errors import RequestError

ROOT = 0


class StopStrings:
    """The stop strings of a request as a tree: made once, read by all its answers, and never changed.

    A node is the beginning of a stop string; each knows its longest proper end that is a node too (Aho-Corasick).
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Build the tree.

        Raises:
            RequestError: a stop string is empty or not valid Unicode, so that no text can match it.
        """
        self._children: list[dict[str, int]] = [{}]
        self._shorter = [ROOT]
        self.longest_stop: list[str | None] = [None]
        """The longest stop string that the text of a node ends with."""
        self.num_held = [0]
        """Characters to hold back at a node: more may follow only where it has children."""
        for place, stop in enumerate(stops):
            _check(place, stop)
            self._add(stop)
        self._link()

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return len(self._children) == 1

    def next_node(self, node: int, character: str) -> int:
        """Give the node of the longest end of a text that begins a stop string, one character on."""
        while node != ROOT and character not in self._children[node]:
            node = self._shorter[node]
        return self._children[node].get(character, ROOT)

    def _add(self, stop: str) -> None:
        node = ROOT
        for depth, character in enumerate(stop, start=1):
            if character not in self._children[node]:
                self._children[node][character] = len(self._children)
                self._children.append({})
                self._shorter.append(ROOT)
                self.longest_stop.append(None)
                self.num_held.append(depth)
            node = self._children[node][character]
        self.longest_stop[node] = stop

    def _link(self) -> None:
        """Find each node's next shorter one, in order of depth, and what follows from it."""
        order = [ROOT]
        for node in order:
            for character, child in self._children[node].items():
                order.append(child)
                if node != ROOT:
                    self._shorter[child] = self.next_node(self._shorter[node], character)
                if self.longest_stop[child] is None:
                    self.longest_stop[child] = self.longest_stop[self._shorter[child]]
                if not self._children[child]:
                    self.num_held[child] = self.num_held[self._shorter[child]]


class StopMatcher:
    """Finds stop strings in the text of one answer; a piece costs time by its own length alone."""

    def __init__(self, stops: StopStrings) -> None:
        """Begin before the first character."""
        self.matched: str | None = None
        """The stop string that cut the text."""
        self._stops = stops
        self._node = ROOT
        self._held = ""

    def feed(self, text: str) -> str:
        """Take the next piece; give the text that is now certain. Sets `matched` on a match."""
        if self._stops.is_empty:
            return text
        window = self._held + text
        cut = len(window)
        for end, character in enumerate(text, start=len(self._held) + 1):
            stop = self._step(character)
            if stop is not None and end - len(stop) < cut:
                cut = end - len(stop)
                self.matched = stop
        return self._release(window, cut)

    def pass_over(self, text: str) -> str:
        """Take the next piece, whose end is too early to stop at; give the text that is now certain."""
        if self._stops.is_empty:
            return text
        window = self._held + text
        for character in text:
            self._step(character)
        return self._release(window, len(window))

    def flush(self) -> str:
        """Give what is held back, for a text that ends here; nothing after a match."""
        held, self._held = self._held, ""
        return held

    def _release(self, window: str, cut: int) -> str:
        if self.matched is None:
            cut -= self._stops.num_held[self._node]
            self._held = window[cut:]
        else:
            self._held = ""
        return window[:cut]

    def _step(self, character: str) -> str | None:
        """Take one character; give the longest stop string that ends with it."""
        self._node = self._stops.next_node(self._node, character)
        return self._stops.longest_stop[self._node]


def _check(place: int, stop: str) -> None:
    if not stop:
        raise RequestError(f"stop[{place}] is empty; give at least one character, or leave it out.")
    if any("\ud800" <= character <= "\udfff" for character in stop):
        raise RequestError(f"stop[{place}] has half of a surrogate pair; send valid Unicode.")
