"""Settings as text: all that are written are read back, and what is wrong is named."""

from typing import Any

import pytest

from builder.errors import UserError
from triton_backend.config import EngineConfig, PolicyName
from triton_backend.engine_options import (
    OPTIONS,
    read_assignments,
    read_options,
    read_prefix,
    written_options,
)

DIGEST = "0123456789abcdef" * 4
CHANGED: dict[str, Any] = {
    "policy": "fair",
    "max_waiting": 7,
    "max_waiting_tokens": 70_000,
    "max_chunk_tokens": 128,
    "prefix_reuse": False,
    "cache_ttl_s": 1.5,
    "common_prefixes": ((448, DIGEST), (16, "f" * 64)),
    "speculation": True,
    "max_draft_tokens": 2,
}


def test_the_defaults_need_no_words() -> None:
    assert written_options(EngineConfig()) == {}
    assert read_options({}) == EngineConfig()


def test_each_option_is_a_setting_of_the_engine() -> None:
    assert set(OPTIONS) == set(CHANGED)
    assert set(OPTIONS) <= set(EngineConfig.__dataclass_fields__)


@pytest.mark.parametrize("name", list(CHANGED))
def test_what_is_written_is_read_back(name: str) -> None:
    config = EngineConfig(**{name: CHANGED[name]})
    written = written_options(config)
    assert list(written) == [name]
    assert read_options(written) == config
    assert read_assignments(f"{key}={text}" for key, text in written.items()) == config


@pytest.mark.parametrize("policy", list(PolicyName))
def test_every_policy_can_be_chosen(policy: str) -> None:
    assert read_options({"policy": policy}).policy == policy


@pytest.mark.parametrize("seconds", [0.25, 600.0, 86400.0, 123456789.0])
def test_seconds_are_written_without_an_exponent(seconds: float) -> None:
    text = written_options(EngineConfig(cache_ttl_s=seconds))["cache_ttl_s"]
    assert "e" not in text
    assert read_options({"cache_ttl_s": text}).cache_ttl_s == seconds


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("polcy", "fair", "unknown setting of the engine 'polcy'. Did you mean policy?"),
        ("watermark", "0.5", "unknown setting of the engine 'watermark'"),
        ("policy", "fastest", "unknown policy 'fastest'"),
        ("max_waiting", "0", "max_waiting must be a number from 1; got '0'"),
        ("max_waiting", "-1", "got '-1'"),
        ("max_waiting", "1_0", "got '1_0'"),
        ("max_chunk_tokens", "", "max_chunk_tokens must be a number from 1; got ''"),
        ("prefix_reuse", "yes", "prefix_reuse must be true or false; got 'yes'"),
        ("speculation", "", "speculation must be true or false; got ''"),
        ("cache_ttl_s", "nan", "cache_ttl_s must be a number of seconds; got 'nan'"),
        ("cache_ttl_s", "0", "cache_ttl_s must be above 0; got 0.0"),
        ("common_prefixes", "448", "a colon and 64 hexadecimal digits; got '448'"),
        ("common_prefixes", f"448:{DIGEST},", "got ''"),
    ],
)
def test_what_is_wrong_is_refused_by_name(name: str, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_options({name: text})
    assert message in str(caught.value)


def test_an_assignment_without_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="max_waiting must be a number from 1; got ''"):
        read_assignments(["max_waiting"])


def test_a_digest_is_read_in_either_case() -> None:
    assert read_prefix(f"3:{DIGEST.upper()}") == (3, DIGEST)
