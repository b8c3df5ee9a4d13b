"""Sampling fields by vLLM's names, from JSON or request parameters, as this engine's sampling parameters.

Numbers may come as strings that spell them, as that backend's own examples send them. A field that this engine
does not do is refused by name, unless its value asks for nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from builder.errors import RequestError, unknown_name
from triton_backend.faces.structured_fields import read_constraint
from triton_backend.field_checks import check_integer, check_type, is_same
from triton_backend.messages import Terms
from triton_backend.request import MAX_PRIORITY, SamplingParams

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Python would also read underscores, spaces, digits of other scripts, and words for what is no number."""

NEUTRAL: dict[str, tuple[object, ...]] = {
    "allowed_token_ids": (),
    "best_of": (1,),
    "detokenize": (True,),
    "early_stopping": (False,),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "lora_name": (),
    # Triton's vLLM backend has no output for them: it would compute them, and drop them.
    "prompt_logprobs": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}
"""Fields that this engine does not do, and the values beside null that ask for nothing."""


def sampling_params(fields: Mapping[str, object]) -> SamplingParams:
    """Read sampling fields; null is as good as absent.

    Raises:
        RequestError: names the field that is unknown, unsupported or wrong.
    """
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None or name in TERMS:
            continue
        if name in SUPPORTED:
            parameter = RENAMED.get(name, name)
            if parameter in given:
                raise RequestError(f"{name} says the same as another field; leave one of them out.")
            given[parameter] = SUPPORTED[name](name, value)
        elif name not in NEUTRAL:
            raise RequestError(unknown_name("sampling field", name, [*SUPPORTED, *TERMS]))
        elif not any(is_same(value, neutral) for neutral in NEUTRAL[name]):
            raise RequestError(
                f"sampling field {name} is not supported by this model; leave it out."
            )
    return SamplingParams(**given)


def terms_of(fields: Mapping[str, object]) -> Terms:
    """Read the fields that are no sampling parameters of the engine.

    Raises:
        RequestError: names the field that is wrong.
    """
    given = {name: fields[name] for name in TERMS if fields.get(name) is not None}
    words = _tuple("bad_words", given.get("bad_words", []))
    for index, word in enumerate(words):
        check_type(f"bad_words[{index}]", word, str)
    priority = _integer("priority", given.get("priority", 0))
    check_integer("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)
    return Terms(priority=cast("int", priority), bad_words=cast("tuple[str, ...]", words))


def _number(name: str, value: object) -> object:
    return _spelled(name, value, float) if isinstance(value, str) else value


def _integer(name: str, value: object) -> object:
    return _spelled(name, value, int) if isinstance(value, str) else value


def _spelled(name: str, text: str, read: Callable[[str], object]) -> object:
    try:
        if NUMBER.fullmatch(text):
            return read(text)
    except ValueError:  # an integer with a fraction, or of thousands of digits
        pass
    raise RequestError(f"{name} must be a number; got a str of {len(text)} characters.")


def _boolean(_: str, value: object) -> object:
    named = {"true": True, "false": False}
    return named.get(value.lower(), value) if isinstance(value, str) else value


def _top_k(name: str, value: object) -> object:
    """Give top_k, in which -1 also means off."""
    count = _integer(name, value)
    return 0 if is_same(count, -1) else count


def _seed(name: str, value: object) -> object:
    """Give the seed, in which -1 also means a fresh one."""
    seed = _integer(name, value)
    return None if is_same(seed, -1) else seed


def _texts(name: str, value: object) -> object:
    """Give stop strings: one, or a list of them."""
    return (value,) if isinstance(value, str) else _tuple(name, value)


def _tuple(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise RequestError(f"{name} must be a list.")
    return tuple(value)


def _biases(name: str, value: object) -> object:
    """Give biases by token id; JSON spells ids as strings."""
    if not isinstance(value, dict):
        raise RequestError(f"{name} must be an object of biases by token id.")
    return tuple((_integer(f"an id of {name}", key), _number(name, value[key])) for key in value)


def _constraint(name: str, value: object) -> object:
    """Give the constraint of an object, or of its JSON text, which request parameters hold."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise RequestError(f"{name} must be a JSON object; it is no JSON.") from None
    if not isinstance(value, dict):
        raise RequestError(f"{name} must be a JSON object.")
    return read_constraint(name, value)


TERMS = ("bad_words", "priority")
RENAMED = {
    "guided_decoding": "constraint",
    "include_stop_str_in_output": "include_stop",
    "n": "num_choices",
    "structured_outputs": "constraint",
}
"""Fields that have another name here."""
SUPPORTED: dict[str, Callable[[str, object], object]] = {
    "frequency_penalty": _number,
    "guided_decoding": _constraint,
    "ignore_eos": _boolean,
    "include_stop_str_in_output": _boolean,
    "logit_bias": _biases,
    "logprobs": _integer,
    "max_tokens": _integer,
    "min_p": _number,
    "min_tokens": _integer,
    "n": _integer,
    "presence_penalty": _number,
    "repetition_penalty": _number,
    "seed": _seed,
    "stop": _texts,
    "stop_token_ids": _tuple,
    "structured_outputs": _constraint,
    "temperature": _number,
    "top_k": _top_k,
    "top_p": _number,
}
"""Fields that this engine does, and how each is read; `SamplingParams` checks what comes out."""
