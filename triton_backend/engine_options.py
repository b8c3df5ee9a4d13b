"""Settings of an engine as text: parameters of config.pbtxt, and options of the engine host by the same names."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from builder.errors import UserError, unknown_name
from triton_backend.config import EngineConfig

COUNT = re.compile(r"[1-9][0-9]{0,8}")
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
PREFIX = re.compile(r"([1-9][0-9]{0,8}):([0-9a-fA-F]{64})")
SWITCHES = {"true": True, "false": False}


def read_options(texts: Mapping[str, str]) -> EngineConfig:
    """Read settings; what is absent is as `EngineConfig` has it.

    Raises:
        UserError: one is unknown or wrong.
    """
    given: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in OPTIONS:
            raise UserError(unknown_name("setting of the engine", name, OPTIONS))
        given[name] = OPTIONS[name](name, text)
    return EngineConfig(**given)


def written_options(config: EngineConfig) -> dict[str, str]:
    """Give the settings that are not the default, as `read_options` reads them."""
    default = EngineConfig()
    values = {name: getattr(config, name) for name in OPTIONS}
    return {
        name: _written(value) for name, value in values.items() if value != getattr(default, name)
    }


def read_assignments(assignments: Iterable[str]) -> EngineConfig:
    """Read settings written as NAME=VALUE.

    Raises:
        UserError: one has no value, or is unknown or wrong.
    """
    pairs = [assignment.partition("=") for assignment in assignments]
    return read_options({name: text for name, _, text in pairs})


def read_prefix(text: str) -> tuple[int, str]:
    """Read a common prefix: number of tokens and digest, with a colon between them.

    Raises:
        UserError: it is not of this form.
    """
    found = PREFIX.fullmatch(text)
    if found is None:
        raise UserError(
            "a common prefix must be a number of tokens, a colon and 64 hexadecimal digits; "
            f"got {text[:80]!r}"
        )
    return int(found[1]), found[2].lower()


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(f"{num_tokens}:{digest}" for num_tokens, digest in value)
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _name(_: str, text: str) -> str:
    return text


def _count(name: str, text: str) -> int:
    return int(_matching(COUNT, name, text, "a number from 1"))


def _seconds(name: str, text: str) -> float:
    return float(_matching(SECONDS, name, text, "a number of seconds"))


def _switch(name: str, text: str) -> bool:
    if text not in SWITCHES:
        raise UserError(f"the parameter {name} must be true or false; got {text[:20]!r}")
    return SWITCHES[text]


def _prefixes(_: str, text: str) -> tuple[tuple[int, str], ...]:
    return tuple(map(read_prefix, text.split(",")))


def _matching(pattern: re.Pattern[str], name: str, text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise UserError(f"the parameter {name} must be {what}; got {text[:20]!r}")
    return text


OPTIONS: Mapping[str, Callable[[str, str], object]] = {
    "policy": _name,
    "max_waiting": _count,
    "max_waiting_tokens": _count,
    "max_chunk_tokens": _count,
    "prefix_reuse": _switch,
    "cache_ttl_s": _seconds,
    "common_prefixes": _prefixes,
    "speculation": _switch,
    "max_draft_tokens": _count,
}
"""Settings of `EngineConfig` that a deployment may choose, and how each is read."""
