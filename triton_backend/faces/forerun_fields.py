"""How the face `forerun` reads what a request says besides its prompt: sampling fields from tensors, callers from parameters."""

from typing import Any

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.messages import Claim, Terms
from triton_backend.protocol import Inputs, Parameters
from triton_backend.request import SamplingParams

MAX_SALT_CHARACTERS = 256
CLAIM: dict[str, type] = {"tenant": str, "tenant_expires": int, "tenant_tag": str}
"""Request parameters by which whoever knows the deployment's secret vouches for a caller (`tenancy.py`)."""


def params_of(inputs: Inputs) -> SamplingParams:
    """Read the sampling parameters.

    Raises:
        RequestError: names the field that is wrong.
    """
    scalars = {name: inputs.scalar(name) for name in SCALARS}
    given: dict[str, Any] = {name: value for name, value in scalars.items() if value is not None}
    return SamplingParams(
        **given,
        stop_token_ids=inputs.integers("stop_token_ids"),
        stop=inputs.texts("stop"),
        logit_bias=_logit_bias(inputs),
        logits_processors=inputs.texts("logits_processors"),
        constraint=_constraint(inputs),
    )


def terms_of(inputs: Inputs, parameters: Parameters) -> Terms:
    """Read the rest.

    Raises:
        RequestError: names the tensor or the parameter that is wrong.
    """
    salt = next(iter(inputs.texts("cache_salt")), "")
    if len(salt) > MAX_SALT_CHARACTERS:
        raise RequestError(
            f"cache_salt must have at most {MAX_SALT_CHARACTERS} characters; got {len(salt)}."
        )
    return Terms(
        claim=_claim(parameters),
        cache_salt=salt,
        store=not inputs.scalar("no_store", False),
        priority=inputs.scalar("priority", 0),
        bad_words=inputs.texts("bad_words"),
    )


def _claim(parameters: Parameters) -> Claim | None:
    given = [name for name in CLAIM if name in parameters]
    if not given:
        return None
    if len(given) < len(CLAIM):
        raise RequestError(
            f"the parameters {', '.join(CLAIM)} belong together; got only {' and '.join(given)}."
        )
    for name, kind in CLAIM.items():
        if type(parameters[name]) is not kind:
            raise RequestError(f"the parameter {name} must be a {kind.__name__}.")
    tenant, expires_s, tag = (parameters[name] for name in CLAIM)
    assert isinstance(tenant, str)
    assert isinstance(expires_s, int)
    assert isinstance(tag, str)
    return Claim(tenant, expires_s, tag)


def _logit_bias(inputs: Inputs) -> tuple[tuple[int, float], ...]:
    ids, biases = inputs.integers("logit_bias_ids"), inputs.numbers("logit_bias")
    if len(ids) != len(biases):
        raise RequestError(
            f"logit_bias_ids and logit_bias must be equally many; got {len(ids)} and {len(biases)}."
        )
    return tuple(zip(ids, biases, strict=True))


def _constraint(inputs: Inputs) -> Constraint | None:
    kinds, texts = inputs.texts("constraint_kind"), inputs.texts("constraint")
    if len(kinds) != len(texts):
        raise RequestError(
            "constraint_kind and constraint belong together; one of them is missing."
        )
    if not kinds:
        return None
    (kind,), (text,) = kinds, texts
    if kind not in list(ConstraintKind):
        raise RequestError(f"constraint_kind must be one of {', '.join(ConstraintKind)}.")
    return Constraint(ConstraintKind(kind), text)


SCALARS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "include_stop",
    "logprobs",
    "prompt_logprobs",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "num_choices",
    "speculation",
)
"""Tensors of one value, named like the sampling parameter that they are."""
