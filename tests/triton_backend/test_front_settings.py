"""The parameters of config.pbtxt: each is read, and what is missing, unknown or wrong is named."""

from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.config import EngineConfig
from triton_backend.front_settings import FrontSettings, read_settings

GOOD = {"face": "forerun", "deployment": "chat", "artifact": "/models/chat"}


def test_all_parameters_are_read() -> None:
    assert read_settings(GOOD) == FrontSettings("forerun", "chat", Path("/models/chat"), None)
    assert read_settings({**GOOD, "threads": "3"}).threads == 3
    engine = read_settings({**GOOD, "policy": "fair", "prefix_reuse": "false"}).engine
    assert engine == EngineConfig(policy="fair", prefix_reuse=False)


def test_a_missed_gate_is_allowed_only_where_it_says_so() -> None:
    assert not read_settings(GOOD).allow_missed_gate
    assert read_settings({**GOOD, "allow_missed_gate": "true"}).allow_missed_gate
    assert not read_settings({**GOOD, "allow_missed_gate": "false"}).allow_missed_gate


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_one_is_named(name: str) -> None:
    for parameters in ({**GOOD, name: ""}, {k: v for k, v in GOOD.items() if k != name}):
        with pytest.raises(UserError, match=f"lacks the parameter {name}; run builder deploy"):
            read_settings(parameters)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thread": "3"}, "unknown parameter in config.pbtxt 'thread'. Did you mean threads?"),
        ({"polcy": "fair"}, "unknown parameter in config.pbtxt 'polcy'. Did you mean policy?"),
        ({"policy": "fastest"}, "unknown policy 'fastest'"),
        ({"threads": "0"}, "threads must be from 1 to 9999; got '0'"),
        ({"threads": "-1"}, "got '-1'"),
        ({"threads": "two"}, "got 'two'"),
        ({"threads": ""}, "got ''"),
        ({"allow_missed_gate": "yes"}, "allow_missed_gate must be true or false; got 'yes'"),
        ({"artifact": "models/chat"}, "artifact must be an absolute path; got models/chat"),
        ({"deployment": "a/b"}, "deployment must be 1 to 128 letters.*; got 'a/b'"),
        ({"deployment": "-a"}, "deployment must be"),
        ({"deployment": "a" * 129}, "deployment must be"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_settings({**GOOD, **change})
