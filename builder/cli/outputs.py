"""Two ways to write answers to stdout in prompt order: as text while it grows, or as lines of JSON.

Both write UTF-8 bytes whatever the locale says, and flush after every write.
"""

import json
from typing import BinaryIO

from builder.cli.run import Outcome


class TextOutput:
    """The first unfinished answer is written as it grows; later ones wait for their turn.

    Every answer ends with a newline: one is added where the text does not end with one.
    """

    def __init__(self, stream: BinaryIO, count: int) -> None:
        self._stream = stream
        self._held = [""] * count
        self._is_finished = [False] * count
        self._turn = 0
        self._line_is_open = True

    def add(self, index: int, text: str) -> None:
        self._held[index] += text
        if index == self._turn:
            self._release()

    def finish(self, index: int, outcome: Outcome) -> None:
        del outcome
        self._is_finished[index] = True
        while self._turn < len(self._held) and self._is_finished[self._turn]:
            self._release()
            if self._line_is_open:
                self._write("\n")
            self._line_is_open = True
            self._turn += 1
        if self._turn < len(self._held):
            self._release()

    def _release(self) -> None:
        """Write what is held of the answer whose turn it is."""
        text, self._held[self._turn] = self._held[self._turn], ""
        if text:
            self._write(text)
            self._line_is_open = not text.endswith("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text.encode("utf-8", "replace"))
        self._stream.flush()


class JsonOutput:
    """One object a line when an answer and all before it are complete."""

    def __init__(self, stream: BinaryIO, count: int) -> None:
        self._stream = stream
        self._texts = [""] * count
        self._lines: list[bytes | None] = [None] * count
        self._turn = 0

    def add(self, index: int, text: str) -> None:
        self._texts[index] += text

    def finish(self, index: int, outcome: Outcome) -> None:
        self._lines[index] = self._line(index, outcome)
        while self._turn < len(self._lines) and (line := self._lines[self._turn]) is not None:
            self._stream.write(line)
            self._turn += 1
        self._stream.flush()

    def _line(self, index: int, outcome: Outcome) -> bytes:
        fields = {
            "index": index,
            "text": self._texts[index],
            "finish_reason": outcome.finish_reason.value,
            "num_prompt_tokens": outcome.num_prompt_tokens,
            "num_generated_tokens": outcome.num_generated_tokens,
        }
        if outcome.error is not None:
            fields["error"] = outcome.error
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
