"""What clients may ask for, field by field.

A field is carried out, or harmless to leave undone and accepted, or refused by its name: nothing that could
change an answer is ignored.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from builder.errors import RequestError
from triton_backend.constraint import Constraint
from triton_backend.faces.forerun_fields import MAX_SALT_CHARACTERS
from triton_backend.faces.structured_fields import read_constraint
from triton_backend.field_checks import MAX_INT32
from triton_backend.messages import Terms
from triton_backend.openai.errors import ApiError, refused, shown
from triton_backend.openai.not_yet import without_idle
from triton_backend.openai.response_format import FORMATS, ResponseFormat, constraint_of
from triton_backend.request import (
    MAX_BIAS,
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_PRIORITY,
    SamplingParams,
)

Body = TypeVar("Body", bound="CommonFields")

TokenId = Annotated[int, Meta(ge=0, le=MAX_INT32)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=MAX_INT32)]
Penalty = Annotated[float, Meta(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Bias = Annotated[float, Meta(ge=-MAX_BIAS, le=MAX_BIAS)]
_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


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
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    response_format: ResponseFormat | None = None
    # Beyond OpenAI, named as vLLM names them.
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    """0 is off, and -1, as vLLM has it."""
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: float | None = None
    bad_words: list[str] | None = None
    structured_outputs: dict[str, Any] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=MAX_SALT_CHARACTERS)] | None = None
    # Harmless: they label the request, or hint at where to run it.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def num_choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def terms(self) -> Terms:
        """What the request says besides its prompt and its sampling parameters."""
        return Terms(
            cache_salt=self.cache_salt or "",
            priority=self.priority or 0,
            bad_words=tuple(self.bad_words or ()),
        )

    @property
    def names(self) -> Mapping[str, str]:
        """Say what fields are called here that the engine calls otherwise."""
        field = "structured_outputs" if self.structured_outputs else "response_format"
        return {"constraint": field, "constraint.text": field}

    def sampling(
        self, *, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None
    ) -> SamplingParams:
        """Give the sampling parameters for an answer of at most `max_tokens`.

        Raises:
            ApiError: they contradict each other or the engine's rules.
        """
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_k": 0 if self.top_k == -1 else self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "stop_token_ids": _tuple(self.stop_token_ids),
            "stop": (self.stop,) if isinstance(self.stop, str) else _tuple(self.stop),
            "ignore_eos": self.ignore_eos,
            "include_stop": self.include_stop_str_in_output,
            "logprobs": logprobs,
            "prompt_logprobs": prompt_logprobs,
            "num_choices": self.n,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": _biases(self.logit_bias),
        }
        try:
            given["constraint"] = self._constraint()
            return SamplingParams(
                **{name: value for name, value in given.items() if value is not None}
            )
        except RequestError as error:
            raise refused(str(error), self.names) from None

    def _constraint(self) -> Constraint | None:
        """Give what the answer must conform to.

        Raises:
            RequestError: two constraints came, or one that is not supported.
        """
        constraint = constraint_of(self.response_format)
        if not self.structured_outputs:
            return constraint
        if constraint is not None:
            raise RequestError("structured_outputs can't be joined with a response_format.")
        return read_constraint("structured_outputs", self.structured_outputs)


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
    def names(self) -> Mapping[str, str]:
        """Say what fields are called here that the engine calls otherwise."""
        names = {**super().names, "prompt_token_ids": "messages"}
        return names | (
            {"max_tokens": "max_completion_tokens"} if self.max_completion_tokens else {}
        )

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
            prompt_logprobs=self.prompt_logprobs,
        )


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
    carried_out = without_idle(data, kind.__struct_fields__)
    try:
        request = msgspec.convert(carried_out, kind)
    except msgspec.ValidationError as error:
        raise wrong_value(str(error)) from None
    _check_stream(request)
    return request


def _check_stream(request: CommonFields) -> None:
    if request.stream_options is not None and not request.stream:
        text = "stream_options is allowed only where stream is true."
        raise ApiError(400, text, param="stream_options", code="invalid_value")
    if request.prompt_logprobs is not None and request.stream:
        # As with vLLM: its streams have no place for them.
        text = "prompt_logprobs is allowed only where stream is not true."
        raise ApiError(400, text, param="prompt_logprobs", code="invalid_value")


def _biases(biases: dict[str, float] | None) -> tuple[tuple[int, float], ...] | None:
    """Give the biases by token id.

    Raises:
        ApiError: a key is no id.
    """
    if biases is None:
        return None
    for key in biases:
        if not _ID.fullmatch(key):
            text = 'logit_bias must have token ids as its keys, such as "50256".'
            raise ApiError(400, text, param="logit_bias", code="invalid_value")
    return tuple((int(key), bias) for key, bias in biases.items())


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def wrong_value(message: str) -> ApiError:
    """Describe a value that has not the type or the bounds of its field."""
    reason, _, path = message.partition(" - at `$")
    param = path.strip(".`")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", reason):
        name = f"{param}.{missing[1]}" if param else missing[1]
        return ApiError(400, f"{name} is missing.", param=name, code="missing_required_parameter")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", reason, re.DOTALL):
        text = f"{param} has no field {shown(unknown[1])!r}."
        return ApiError(400, text, param=param, code="unknown_parameter")
    if reason.startswith("Invalid value "):  # of a tag, which it repeats
        reason = f"Must be one of {', '.join(FORMATS)}"
    code = "invalid_type" if ", got `" in reason else "invalid_value"
    return ApiError(400, f"{param}: {reason[0].lower()}{reason[1:]}.", param=param, code=code)
