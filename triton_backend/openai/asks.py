"""What the shim asks of the `forerun` face: a prompt and how to continue it, as tensors of a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.utils import triton_to_np_dtype

from triton_backend.faces.forerun import FORERUN
from triton_backend.messages import NO_TERMS, Terms
from triton_backend.request import SamplingParams
from triton_backend.segments import Segment

WIRE_TYPES = {
    tensor.name: "BYTES" if tensor.data_type == "STRING" else tensor.data_type
    for tensor in FORERUN.inputs
}
"""The protocol's names of data types differ from those of configurations in this one."""
OPTIONAL = ("max_tokens", "seed", "logprobs", "prompt_logprobs")
"""Parameters of one value that are sent where there is one."""
FURTHER = (
    "num_choices",
    "include_stop",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Parameters of one value that are sent where they differ from the default."""
DEFAULTS = SamplingParams()


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to continue, and how."""

    prompt: tuple[InferInput, ...] = field(repr=False)
    params: SamplingParams
    is_streamed: bool
    terms: Terms = NO_TERMS
    names: Mapping[str, str] = field(default_factory=dict)
    """What the client calls fields that the engine calls otherwise."""
    wants_answer: bool = True
    """Else the one token that the engine draws at least is for nobody: the prompt is all that the client asks about."""


def text_prompt(text: str) -> tuple[InferInput, ...]:
    """Give the tensors of a plain text; the model's begin token is added by the engine host."""
    return (_tensor("text", [text.encode()]),)


def token_ids_prompt(token_ids: Sequence[int]) -> tuple[InferInput, ...]:
    """Give the tensors of a prompt that is tokens already."""
    return (_tensor("token_ids", token_ids),)


def segments_prompt(segments: Sequence[Segment]) -> tuple[InferInput, ...]:
    """Give the tensors of a rendered chat."""
    return (
        _tensor("segments", [segment.text.encode() for segment in segments]),
        _tensor("segment_kinds", [segment.kind.encode() for segment in segments]),
    )


def tensors_of(ask: Ask) -> list[InferInput]:
    """Give all tensors of an ask."""
    params = ask.params
    tensors = [
        *ask.prompt,
        _tensor("temperature", [params.temperature]),
        _tensor("top_k", [params.top_k]),
        _tensor("top_p", [params.top_p]),
        _tensor("min_tokens", [params.min_tokens]),
        _tensor("ignore_eos", [params.ignore_eos]),
        _tensor("stream", [ask.is_streamed]),
    ]
    optional = ((name, getattr(params, name)) for name in OPTIONAL)
    tensors += [_tensor(name, [value]) for name, value in optional if value is not None]
    if params.stop:
        tensors.append(_tensor("stop", [text.encode() for text in params.stop]))
    if params.stop_token_ids:
        tensors.append(_tensor("stop_token_ids", params.stop_token_ids))
    return tensors + _further(params) + _terms(ask.terms)


def _further(params: SamplingParams) -> list[InferInput]:
    """Give the tensors of what few requests ask for; what is as by default is left out."""
    tensors = [
        _tensor(name, [getattr(params, name)])
        for name in FURTHER
        if getattr(params, name) != getattr(DEFAULTS, name)
    ]
    if params.logit_bias:
        ids, biases = zip(*params.logit_bias, strict=True)
        tensors += [_tensor("logit_bias_ids", ids), _tensor("logit_bias", biases)]
    if params.constraint is not None:
        tensors.append(_tensor("constraint_kind", [params.constraint.kind.encode()]))
        tensors.append(_tensor("constraint", [params.constraint.text.encode()]))
    return tensors


def _terms(terms: Terms) -> list[InferInput]:
    tensors = []
    if terms.priority:
        tensors.append(_tensor("priority", [terms.priority]))
    if terms.cache_salt:
        tensors.append(_tensor("cache_salt", [terms.cache_salt.encode()]))
    if terms.bad_words:
        tensors.append(_tensor("bad_words", [word.encode() for word in terms.bad_words]))
    return tensors


def _tensor(name: str, values: Sequence[Any]) -> InferInput:
    tensor = InferInput(name, [len(values)], WIRE_TYPES[name])
    tensor.set_data_from_numpy(np.array(values, dtype=triton_to_np_dtype(WIRE_TYPES[name])))
    return tensor
