"""What clients may ask for, field by field.

A field is carried out, or harmless to leave undone and accepted, or refused by its name: nothing that could
change an answer is ignored.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from builder.errors import RequestError, unknown_name
from triton_backend.openai.errors import ApiError, refused, shown
from triton_backend.request import MAX_INT32, SamplingParams

Body = TypeVar("Body", bound="CommonFields")

TokenId = Annotated[int, Meta(ge=0, le=MAX_INT32)]
TokenIds = Annotated[list[TokenId], Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=MAX_INT32)]

# Fields that are known and not carried out yet, with the values that ask for nothing (null always does).
NOT_YET: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "function_call": ("none",),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "logit_bias": ({},),
    "min_p": (0, 0.0),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "presence_penalty": (0, 0.0),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "repetition_penalty": (1, 1.0),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None
    # Padding that hides the lengths of tokens; we send none.
    include_obfuscation: Literal[False] | None = None


class CommonFields(msgspec.Struct, frozen=True, kw_only=True):
    """What chats and completions share. Null stands for the default of every optional field."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    # Beyond OpenAI, named as other servers name them.
    top_k: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    # Harmless: they label the request, or hint at where to run it.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Give the sampling parameters for an answer of at most `max_tokens`.

        Raises:
            ApiError: they contradict each other or the engine's rules.
        """
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "stop_token_ids": _tuple(self.stop_token_ids),
            "stop": (self.stop,) if isinstance(self.stop, str) else _tuple(self.stop),
            "ignore_eos": self.ignore_eos,
            "logprobs": logprobs,
        }
        try:
            return SamplingParams(
                **{name: value for name, value in given.items() if value is not None}
            )
        except RequestError as error:
            raise refused(str(error)) from None


class ChatRequest(CommonFields, frozen=True, kw_only=True):
    """Body of POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Count | None = None
    """Counts where `max_tokens`, its older name, is given as well."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """Beyond OpenAI: further variables of the chat template."""

    @property
    def params(self) -> SamplingParams:
        """Give the sampling parameters.

        Raises:
            ApiError: they contradict each other or the engine's rules.
        """
        if self.top_logprobs and not self.logprobs:
            text = "top_logprobs is allowed only where logprobs is true."
            raise ApiError(400, text, param="top_logprobs", code="invalid_value")
        return self.sampling(
            max_tokens=self.max_completion_tokens or self.max_tokens,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


class CompletionRequest(CommonFields, frozen=True, kw_only=True):
    """Body of POST /v1/completions."""

    prompt: str | list[Any]
    """A text, texts, token ids, or lists of token ids."""
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None

    @property
    def params(self) -> SamplingParams:
        """Give the sampling parameters.

        Raises:
            ApiError: they contradict each other or the engine's rules.
        """
        return self.sampling(max_tokens=self.max_tokens, logprobs=self.logprobs)

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
            raise _invalid(str(error).replace("`$", "`$.prompt")) from None


def decode(body: bytes, kind: type[Body]) -> Body:
    """Read a request.

    Raises:
        ApiError: it is no JSON object, or a field is unknown, unsupported or of a wrong type or value.
    """
    try:
        data = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise ApiError(400, f"the body is not valid JSON: {reason}.", code="invalid_json") from None
    if not isinstance(data, dict):
        raise ApiError(400, "the body must be a JSON object.", code="invalid_type")
    carried_out = _without_refused(data, kind.__struct_fields__)
    try:
        request = msgspec.convert(carried_out, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    if request.stream_options is not None and not request.stream:
        raise ApiError(
            400,
            "stream_options is allowed only where stream is true.",
            param="stream_options",
            code="invalid_value",
        )
    return request


def _without_refused(data: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Give the fields in `known`; all others must be among those that may ask for nothing."""
    kept = {}
    for name, value in data.items():
        if name in known:
            kept[name] = value
        elif name not in NOT_YET:
            text = unknown_name("field", shown(name), [*known, *NOT_YET])
            raise ApiError(400, text, param=shown(name), code="unknown_parameter")
        elif value is not None and not any(_is_same(value, idle) for idle in NOT_YET[name]):
            text = f"{name} is not supported with this value; leave it out."
            raise ApiError(400, text, param=name, code="unsupported_parameter")
    return kept


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _is_same(value: object, other: object) -> bool:
    """Whether two JSON values are the same; true is not 1."""
    return type(value) is type(other) and value == other


def _invalid(message: str) -> ApiError:
    """Describe a value that has not the type or the bounds of its field."""
    reason, _, path = message.partition(" - at `$")
    param = path.strip(".`")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", reason):
        name = f"{param}.{missing[1]}" if param else missing[1]
        return ApiError(400, f"{name} is missing.", param=name, code="missing_required_parameter")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", reason, re.DOTALL):
        text = f"{param} has no field {shown(unknown[1])!r}."
        return ApiError(400, text, param=param, code="unknown_parameter")
    code = "invalid_type" if ", got `" in reason else "invalid_value"
    return ApiError(400, f"{param}: {reason[0].lower()}{reason[1:]}.", param=param, code=code)
