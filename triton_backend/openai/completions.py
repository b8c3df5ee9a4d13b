"""POST /v1/completions: `n` choices for each prompt, which an answer repeats where it is asked to."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from triton_backend.detokenizer import Detokenizer
from triton_backend.openai.asks import Ask, text_prompt, token_ids_prompt
from triton_backend.openai.completion_request import CompletionRequest
from triton_backend.openai.deltas import AnswerDelta
from triton_backend.openai.logprobs import CompletionColumns, joined, prompt_logprobs
from triton_backend.openai.model import Model
from triton_backend.openai.replies import CompletionChoice, CompletionLogprobs, PromptLogprobs
from triton_backend.tokenizer import Tokenizer

Prompt = str | list[int]


def completion_asks(request: CompletionRequest, prompts: Sequence[Prompt]) -> list[Ask]:
    """Give one ask for each prompt.

    Raises:
        ApiError: a parameter is refused.
    """
    params = request.params
    return [
        Ask(
            text_prompt(prompt) if isinstance(prompt, str) else token_ids_prompt(prompt),
            params,
            is_streamed=bool(request.stream),
            terms=request.terms,
            names=request.names,
            wants_answer=request.max_tokens != 0,
        )
        for prompt in prompts
    ]


class CompletionShape:
    """Shapes the answers of a completions request."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: Model, request: CompletionRequest, prompts: Sequence[Prompt]) -> None:
        """Shape answers of `model` to `prompts`."""
        self.model = model
        self._num_prompt_logprobs = request.prompt_logprobs
        self._has_logprobs = request.logprobs is not None
        self._columns: defaultdict[int, CompletionColumns] = defaultdict(
            lambda: CompletionColumns(model.tokenizer, request.logprobs or 0)
        )
        echoed = [_text_of(prompt, model.tokenizer) for prompt in prompts] if request.echo else []
        self._echoes = dict(enumerate(text for text in echoed for _ in range(request.num_choices)))
        """Texts that go before the answers, by choice; of choices that have not begun."""

    def opening(self) -> list[CompletionChoice]:
        """Give what a stream begins with: nothing."""
        return []

    def pieces(self, index: int, delta: AnswerDelta) -> Iterator[CompletionChoice]:
        """Give the news of a delta: the prompt if it is to be repeated, the answer's text, then the end."""
        if index in self._echoes:
            yield self._echo(index, delta)
        if delta.text or delta.tokens:
            yield CompletionChoice(index, delta.text, self._logprobs(index, delta))
        if delta.finish_reason is not None:
            yield CompletionChoice(index, "", finish_reason=delta.finish_reason)

    def whole(self, index: int, delta: AnswerDelta) -> CompletionChoice:
        """Give an answer that came in one delta."""
        echo = self._echo(index, delta) if index in self._echoes else None
        text, logprobs = delta.text, self._logprobs(index, delta)
        if echo is not None:
            text = echo.text + text
            logprobs = echo.logprobs and logprobs and joined(echo.logprobs, logprobs)
        return CompletionChoice(index, text, logprobs, delta.finish_reason, self._told(delta))

    def prompt_logprobs(self, _: AnswerDelta) -> UnsetType:
        """Give nothing: each choice has its own."""
        return UNSET

    def _told(self, delta: AnswerDelta) -> PromptLogprobs | UnsetType:
        if self._num_prompt_logprobs is None or delta.prompt is None:
            return UNSET
        return prompt_logprobs(self.model.tokenizer, delta.prompt, self._num_prompt_logprobs)

    def _echo(self, index: int, delta: AnswerDelta) -> CompletionChoice:
        """Give the prompt as the first piece of an answer."""
        text = self._echoes.pop(index)
        if not self._has_logprobs:
            return CompletionChoice(index, text)
        assert delta.prompt is not None, "the first news of an answer tells its prompt"
        return CompletionChoice(index, text, self._columns[index].describe_prompt(delta.prompt))

    def _logprobs(self, index: int, delta: AnswerDelta) -> CompletionLogprobs | None:
        return self._columns[index].describe(delta.tokens) if self._has_logprobs else None


def _text_of(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Give a prompt as text; control tokens of ids have none, as in an answer."""
    return prompt if isinstance(prompt, str) else Detokenizer(tokenizer).feed(prompt)
