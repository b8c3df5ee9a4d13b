"""What the engine needs of the stage that turns token ids into text; it knows no more of text.

For each answer the engine calls `start` once at submit, `extend` for tokens that stay in its text (for an id
that ended it only if the request wants its text), and `finish` exactly once at the end, whatever ended the request.
"""

from collections.abc import Sequence
from typing import Protocol

from builder.errors import RequestError
from triton_backend.request import Request

AnswerId = tuple[str, int]
"""The id of a request and the choice."""


class TextStage(Protocol):
    """Detokenizes the answers of all running requests and finds stop strings in them."""

    def opens_text(self, prompt_token_ids: Sequence[int]) -> bool:
        """Tell whether the text of an answer to a prompt opens a text. Any thread may ask."""
        ...

    def start(self, answer_id: AnswerId, request: Request) -> None:
        """Begin the text of one answer; the request's groundwork is laid.

        Raises:
            RequestError: the request asks for something this stage can't do.
        """
        ...

    def extend(self, answer_id: AnswerId, token_ids: Sequence[int]) -> tuple[str, str | None]:
        """Take new tokens; give the text that is now certain, and the stop string that matched.

        The text ends before a match, or after it where the request includes stops. A match before the request's `min_tokens` does not count.
        """
        ...

    def finish(self, answer_id: AnswerId) -> str:
        """Drop the answer's state; give the text that was held back (none after a match)."""
        ...


class NoText:
    """The text stage of an engine that gives token ids alone."""

    def opens_text(self, prompt_token_ids: Sequence[int]) -> bool:  # noqa: ARG002
        """Say no: there is none."""
        return False

    def start(self, answer_id: AnswerId, request: Request) -> None:  # noqa: ARG002
        """Refuse stop strings, which only text can match."""
        if request.params.stop:
            raise RequestError("stop strings need text, and this engine gives token ids alone.")

    def extend(self, answer_id: AnswerId, token_ids: Sequence[int]) -> tuple[str, str | None]:  # noqa: ARG002
        """Give nothing."""
        return "", None

    def finish(self, answer_id: AnswerId) -> str:  # noqa: ARG002
        """Give nothing."""
        return ""
