"""What clients may ask for in completions: the fields beside those that chats have too."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from triton_backend.field_checks import MAX_INT32
from triton_backend.openai.errors import ApiError
from triton_backend.openai.schema import CommonFields, TokenId, wrong_value
from triton_backend.request import SamplingParams

TokenIds = Annotated[list[TokenId], Meta(min_length=1)]


class CompletionRequest(CommonFields, frozen=True, kw_only=True):
    """Body of POST /v1/completions."""

    prompt: str | list[Any]
    """A text, texts, token ids, or lists of token ids."""
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    """Each answer begins with its prompt, and so do its logprobs."""
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None
    """0 is allowed with `echo`, and asks about the prompt alone."""

    @property
    def params(self) -> SamplingParams:
        """Give the sampling parameters.

        Raises:
            ApiError: they contradict each other or the engine's rules.
        """
        if self.max_tokens == 0:
            self._check_prompt_only()
        asked = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return self.sampling(
            # The engine draws one token at least.
            max_tokens=1 if self.max_tokens == 0 else self.max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=max((each for each in asked if each is not None), default=None),
        )

    def _check_prompt_only(self) -> None:
        if not self.echo:
            text = "max_tokens must be at least 1 where echo is not true."
            raise ApiError(400, text, param="max_tokens", code="invalid_value")
        if self.min_tokens:
            text = f"min_tokens must be at most max_tokens (0); got {self.min_tokens}."
            raise ApiError(400, text, param="min_tokens", code="invalid_value")

    def prompts(self, max_prompts: int) -> list[str | list[int]]:
        """Give every prompt, as text or as token ids.

        Raises:
            ApiError: there is none, there are too many, or one has a wrong type.
        """
        prompts = self._listed_prompts()
        if not 1 <= len(prompts) <= max_prompts:
            text = f"prompt must hold 1 to {max_prompts} prompts; got {len(prompts)}."
            raise ApiError(400, text, param="prompt", code="invalid_value")
        return prompts

    def _listed_prompts(self) -> list[Any]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        first = next(iter(self.prompt), None)
        try:
            if isinstance(first, int):
                return [msgspec.convert(self.prompt, TokenIds)]
            if isinstance(first, list):
                return msgspec.convert(self.prompt, list[TokenIds])
            return msgspec.convert(self.prompt, list[str])
        except msgspec.ValidationError as error:
            raise wrong_value(str(error).replace("`$", "`$.prompt")) from None
