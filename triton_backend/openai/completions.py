"""POST /v1/completions: `n` choices for each prompt."""

from collections import defaultdict
from collections.abc import Iterator

from triton_backend.openai.face import AnswerDelta, Ask, text_prompt, token_ids_prompt
from triton_backend.openai.logprobs import CompletionColumns
from triton_backend.openai.model import Model
from triton_backend.openai.replies import CompletionChoice, CompletionLogprobs
from triton_backend.openai.schema import CompletionRequest


def completion_asks(request: CompletionRequest, max_prompts: int) -> list[Ask]:
    """Give one ask for each prompt.

    Raises:
        ApiError: a prompt or a parameter is refused.
    """
    params = request.params
    return [
        Ask(
            text_prompt(prompt) if isinstance(prompt, str) else token_ids_prompt(prompt),
            params,
            is_streamed=bool(request.stream),
            terms=request.terms,
            constraint_field=request.constraint_field,
        )
        for prompt in request.prompts(max_prompts)
    ]


class CompletionShape:
    """Shapes the answers of a completions request."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: Model, *, num_logprobs: int | None) -> None:
        """Shape answers of `model`."""
        self.model = model
        self._has_logprobs = num_logprobs is not None
        self._columns: defaultdict[int, CompletionColumns] = defaultdict(
            lambda: CompletionColumns(model.tokenizer, num_logprobs or 0)
        )

    def opening(self) -> list[CompletionChoice]:
        """Give what a stream begins with: nothing."""
        return []

    def pieces(self, index: int, delta: AnswerDelta) -> Iterator[CompletionChoice]:
        """Give the news of a delta: its text, then the end."""
        if delta.text or delta.tokens:
            yield CompletionChoice(index, delta.text, self._logprobs(index, delta))
        if delta.finish_reason is not None:
            yield CompletionChoice(index, "", finish_reason=delta.finish_reason)

    def whole(self, index: int, delta: AnswerDelta) -> CompletionChoice:
        """Give an answer that came in one delta."""
        return CompletionChoice(
            index, delta.text, self._logprobs(index, delta), finish_reason=delta.finish_reason
        )

    def _logprobs(self, index: int, delta: AnswerDelta) -> CompletionLogprobs | None:
        return self._columns[index].describe(delta.tokens) if self._has_logprobs else None
