"""The text stage of an engine: each answer has its own detokenizer and stop matcher.

Tokens are taken one by one, so that an answer's text and its end depend on its tokens alone, not on how
many of them one step brought.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.errors import RequestError
from triton_backend.detokenizer import Detokenizer, opens_text
from triton_backend.request import Request
from triton_backend.stops import StopMatcher
from triton_backend.text import AnswerId
from triton_backend.tokenizer import Tokenizer


@dataclass(slots=True)
class _Answer:
    detokenizer: Detokenizer
    stops: StopMatcher
    num_tokens_before_stop: int
    """Tokens still to come before one may complete a stop string."""
    includes_stop: bool


class Answers:
    """Detokenizes the answers of all running requests and finds stop strings in them (a `TextStage`)."""

    def __init__(self, tokenizer: Tokenizer, end_token_ids: Iterable[int]) -> None:
        """Begin without answers. `end_token_ids` give no text, also where they don't end an answer."""
        self._tokenizer = tokenizer
        self._end_token_ids = frozenset(end_token_ids)
        self._answers: dict[AnswerId, _Answer] = {}

    def __len__(self) -> int:
        """Count the answers that have begun and not finished."""
        return len(self._answers)

    def opens_text(self, prompt_token_ids: Sequence[int]) -> bool:
        """See `TextStage`."""
        return opens_text(self._tokenizer, prompt_token_ids)

    def start(self, answer_id: AnswerId, request: Request) -> None:
        """Begin the text of one answer.

        Raises:
            RequestError: the id belongs to a running request.
        """
        if answer_id in self._answers:
            raise RequestError("a request with this id is running; ids must differ.")
        assert request.groundwork is not None, "a text begins before its request was prepared"
        self._answers[answer_id] = _Answer(
            Detokenizer(self._tokenizer, opens_text=request.groundwork.opens_text),
            StopMatcher(request.groundwork.stops),
            request.params.min_tokens - 1,
            request.params.include_stop,
        )

    def extend(self, answer_id: AnswerId, token_ids: Sequence[int]) -> tuple[str, str | None]:
        """Take new tokens; give the text that is now certain, and the stop string that matched.

        The text ends before a match, or after it if the request includes stops, and so does what is read of
        `token_ids`. A stop string that is complete before the answer has `min_tokens` tokens is text like any
        other.
        """
        answer = self._answers[answer_id]
        text = []
        for token_id in token_ids:
            if answer.stops.matched is not None:
                break
            text.append(self._taken(answer, token_id))
        return "".join(text), answer.stops.matched

    def finish(self, answer_id: AnswerId) -> str:
        """Drop the answer's state; give the text that was held back (none after a match).

        Bytes of a character that never became complete are dropped.
        """
        return self._answers.pop(answer_id).stops.flush()

    def _taken(self, answer: _Answer, token_id: int) -> str:
        text = ""
        if token_id not in self._end_token_ids:
            text = answer.detokenizer.feed((token_id,))
        if answer.num_tokens_before_stop > 0:
            answer.num_tokens_before_stop -= 1
            return answer.stops.pass_over(text)
        text = answer.stops.feed(text)
        return text + (answer.stops.matched or "") if answer.includes_stop else text
