"""Sampling fields by vLLM's names, from JSON or request parameters, as this engine's sampling parameters.

Numbers may come as strings that spell them, as that backend's own examples send them. A field that this engine
does not do is refused by name, unless its value asks for nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from builder.errors import RequestError, unknown_name
from triton_backend.request import SamplingParams

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Python would also read underscores, spaces, digits of other scripts, and words for what is no number."""

NEUTRAL: dict[str, tuple[object, ...]] = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "best_of": (1,),
    "detokenize": (True,),
    "early_stopping": (False,),
    "frequency_penalty": (0,),
    "guided_decoding": (),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "lora_name": (),
    "min_p": (0,),
    "n": (1,),
    "presence_penalty": (0,),
    "priority": (0,),
    "prompt_logprobs": (),
    "repetition_penalty": (1,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "structured_outputs": (),
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
        if value is None:
            continue
        if name in SUPPORTED:
            given[name] = SUPPORTED[name](name, value)
        elif name not in NEUTRAL:
            raise RequestError(unknown_name("sampling field", name[:64], [*SUPPORTED, *NEUTRAL]))
        elif not any(_is_same(value, neutral) for neutral in NEUTRAL[name]):
            raise RequestError(
                f"sampling field {name} is not supported by this model; leave it out."
            )
    return SamplingParams(**given)


def _is_same(value: object, neutral: object) -> bool:
    """Tell whether a value says what a neutral one does; to Python, true is 1."""
    return isinstance(value, bool) is isinstance(neutral, bool) and value == neutral


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
    return 0 if count == -1 else count


def _seed(name: str, value: object) -> object:
    """Give the seed, in which -1 also means a fresh one."""
    seed = _integer(name, value)
    return None if seed == -1 else seed


def _texts(name: str, value: object) -> object:
    """Give stop strings: one, or a list of them."""
    return (value,) if isinstance(value, str) else _tuple(name, value)


def _tuple(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise RequestError(f"{name} must be a list.")
    return tuple(value)


SUPPORTED: dict[str, Callable[[str, object], object]] = {
    "ignore_eos": _boolean,
    "logprobs": _integer,
    "max_tokens": _integer,
    "min_tokens": _integer,
    "seed": _seed,
    "stop": _texts,
    "stop_token_ids": _tuple,
    "temperature": _number,
    "top_k": _top_k,
    "top_p": _number,
}
"""Fields that this engine does, and how each is read; `SamplingParams` checks what comes out."""
