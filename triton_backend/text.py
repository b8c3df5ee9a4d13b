"""What the engine needs of the stage that turns token ids into text; it knows no more of text.

The engine calls `start` once at submit, `extend` for tokens that stay in the answer (never for an id
that ended it), and `finish` exactly once at the end, whatever ended the request.
"""

from collections.abc import Sequence
from typing import Protocol

from builder.errors import RequestError
from triton_backend.request import Request


class TextStage(Protocol):
    """Detokenizes the answers of all running requests and finds stop strings in them."""

    def start(self, request: Request) -> None:
        """Begin the text of one answer.

        Raises:
            RequestError: the request asks for something this stage can't do.
        """
        ...

    def extend(self, request_id: str, token_ids: Sequence[int]) -> tuple[str, str | None]:
        """Take new tokens; give the text that is now certain, and the stop string that matched.

        The text ends before a match. A match before the request's `min_tokens` does not count.
        """
        ...

    def finish(self, request_id: str) -> str:
        """Drop the answer's state; give the text that was held back (none after a match)."""
        ...


class NoText:
    """The text stage of an engine that gives token ids alone."""

    def start(self, request: Request) -> None:
        """Refuse stop strings, which only text can match."""
        if request.params.stop:
            raise RequestError("stop strings need text, and this engine gives token ids alone.")

    def extend(self, request_id: str, token_ids: Sequence[int]) -> tuple[str, str | None]:  # noqa: ARG002
        """Give nothing."""
        return "", None

    def finish(self, request_id: str) -> str:  # noqa: ARG002
        """Give nothing."""
        return ""
