"""The contract of Triton's vLLM backend: text in, text out, sampling fields as JSON or as parameters.

A response has one element per choice in each output of several, empty for those without news. Special tokens that `text_input` spells count, as they do there: clients send prompts that went through a chat
template. Without `max_tokens` an answer goes on to its own end, where that backend cuts it at 16 tokens.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TypeAlias

import msgspec
import numpy as np

from builder.errors import RequestError
from triton_backend.faces.sampling_fields import sampling_params, terms_of
from triton_backend.messages import ControlText, News
from triton_backend.protocol import (
    TRITONS_OWN,
    Array,
    Ask,
    Face,
    Inputs,
    Parameters,
    Tensor,
    floats,
    strings,
)
from triton_backend.request import TokenLogprobs

INPUTS = (
    Tensor("text_input", "STRING", 1, is_optional=False),
    Tensor("image", "STRING", -1),
    Tensor("stream", "BOOL", 1),
    Tensor("sampling_parameters", "STRING", 1),
    Tensor("exclude_input_in_output", "BOOL", 1),
    Tensor("return_finish_reason", "BOOL", 1),
    Tensor("return_cumulative_logprob", "BOOL", 1),
    Tensor("return_logprobs", "BOOL", 1),
    Tensor("return_num_input_tokens", "BOOL", 1),
    Tensor("return_num_output_tokens", "BOOL", 1),
    Tensor("embedding_request", "STRING", 1),
)
OUTPUTS = (
    Tensor("text_output", "STRING", -1),
    Tensor("finish_reason", "STRING", -1),
    Tensor("cumulative_logprob", "FP32", -1),
    Tensor("logprobs", "STRING", -1),
    Tensor("num_input_tokens", "UINT32", 1),
    Tensor("num_output_tokens", "UINT32", -1),
)
UNSUPPORTED_INPUTS = {"image": "images", "embedding_request": "requests for embeddings"}
LEAST_LOGPROB = -9999.0
"""Stands in JSON for minus infinity and NaN, which it can't spell."""


def read(inputs: Inputs, parameters: Parameters, wanted: Collection[str]) -> Ask:
    """Read a request.

    Raises:
        RequestError: names the tensor or the sampling field that is wrong.
    """
    for name, what in UNSUPPORTED_INPUTS.items():
        if name in inputs:
            raise RequestError(f"{name} is not supported: this model takes no {what}.")
    if "text_input" not in inputs:
        raise RequestError("text_input is missing; give the prompt in it.")
    (prompt,) = inputs.texts("text_input")
    is_streaming = inputs.scalar("stream", False)
    leaves_out_prompt = inputs.scalar("exclude_input_in_output", is_streaming)
    if is_streaming and not leaves_out_prompt:
        raise RequestError("exclude_input_in_output must not be false when stream is true.")
    fields = _fields(inputs, parameters)
    told = [tensor.name for tensor in OUTPUTS if inputs.scalar(f"return_{tensor.name}", False)]
    has_logprobs = fields.get("logprobs") is not None
    if "cumulative_logprob" in told and not has_logprobs:
        fields = {**fields, "logprobs": 0}
    params = sampling_params(fields)
    return Ask(
        prompt=ControlText(prompt),
        params=params,
        is_streaming=is_streaming,
        terms=terms_of(fields),
        write=_Writer(
            [name for name in ("text_output", *told) if name in wanted],
            prompt="" if leaves_out_prompt else prompt,
            has_logprobs=has_logprobs,
            num_choices=params.num_choices,
        ),
    )


def _fields(inputs: Inputs, parameters: Parameters) -> Mapping[str, object]:
    """Give the sampling fields: of the JSON if there is one, else the request's parameters."""
    given = {name: value for name, value in parameters.items() if name not in TRITONS_OWN}
    if "sampling_parameters" not in inputs:
        return given
    if given:
        raise RequestError(
            "sampling fields came in sampling_parameters and as parameters; choose one of the two."
        )
    try:
        # Unlike the json module it refuses NaN, and half of a surrogate pair.
        fields = msgspec.json.decode(inputs.texts("sampling_parameters")[0])
    except (msgspec.DecodeError, RecursionError):
        raise RequestError("sampling_parameters must be a JSON object; it is no JSON.") from None
    if not isinstance(fields, dict):
        raise RequestError("sampling_parameters must be a JSON object; it is other JSON.")
    return fields


Choices: TypeAlias = Sequence[News | None]
"""The news of each choice, if there is any."""


class _Writer:
    """Writes the responses of one request."""

    def __init__(
        self, names: Collection[str], *, prompt: str, has_logprobs: bool, num_choices: int
    ) -> None:
        self._prompts = [prompt] * num_choices
        """Go before the first text of each choice."""
        self._cumulative = [0.0] * num_choices
        self._reasons = ["None"] * num_choices
        values: dict[str, Callable[[Choices], Array]] = {
            "text_output": self._texts,
            "finish_reason": self._finish_reasons,
            "cumulative_logprob": self._cumulative_logprobs,
            "logprobs": _logprobs if has_logprobs else _no_logprobs,
            "num_input_tokens": _num_input_tokens,
            "num_output_tokens": _num_output_tokens,
        }
        self._values = {name: values[name] for name in names}

    def __call__(self, news: Iterable[News]) -> list[dict[str, Array]]:
        """Give one response."""
        choices: list[News | None] = [None] * len(self._prompts)
        for each in news:
            choices[each.choice] = each
        return [{name: value(choices) for name, value in self._values.items()}]

    def _texts(self, choices: Choices) -> Array:
        texts = []
        for choice, news in enumerate(choices):
            texts.append(b"" if news is None else (self._prompts[choice] + news.text).encode())
            if news is not None:
                self._prompts[choice] = ""
        return strings(*texts)

    def _finish_reasons(self, choices: Choices) -> Array:
        for choice, news in enumerate(choices):
            if news is not None:
                self._reasons[choice] = str(news.finish_reason)
        return strings(*(reason.encode() for reason in self._reasons))

    def _cumulative_logprobs(self, choices: Choices) -> Array:
        for choice, news in enumerate(choices):
            logprobs = () if news is None else news.logprobs
            self._cumulative[choice] += math.fsum(told.logprob for told in logprobs)
        return floats(*self._cumulative)


def _num_input_tokens(choices: Choices) -> Array:
    (num_tokens,) = {news.num_prompt_tokens for news in choices if news is not None}
    return np.array([num_tokens], np.uint32)


def _num_output_tokens(choices: Choices) -> Array:
    """Count the new tokens of all choices."""
    num_tokens = sum(len(news.token_ids) for news in choices if news is not None)
    return np.array([num_tokens], np.uint32)


def _no_logprobs(choices: Choices) -> Array:
    return strings(*(b"null" for _ in choices))


def _logprobs(choices: Choices) -> Array:
    """Give for each choice a JSON list with an object per token: the token itself, then the likeliest ones."""
    rows = [[] if news is None else _rows(news) for news in choices]
    return strings(*(json.dumps(each).encode() for each in rows))


def _rows(news: News) -> list[dict[int, dict[str, object]]]:
    tops = news.top_bytes or repeat(())
    rows = zip(news.token_ids, news.token_bytes, news.logprobs, tops, strict=False)
    return [_candidates(*row) for row in rows]


def _candidates(
    token_id: int, data: bytes, told: TokenLogprobs, top_bytes: tuple[bytes, ...]
) -> dict[int, dict[str, object]]:
    top = zip(
        told.top_ids, told.top_logprobs, range(1, len(told.top_ids) + 1), top_bytes, strict=True
    )
    return {
        each: {
            "logprob": logprob if math.isfinite(logprob) else LEAST_LOGPROB,
            "rank": rank,
            "decoded_token": spelled.decode("utf-8", "replace"),
        }
        for each, logprob, rank, spelled in chain([(token_id, told.logprob, told.rank, data)], top)
    }


VLLM = Face("vllm", INPUTS, OUTPUTS, read)
