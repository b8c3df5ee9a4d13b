"""Bounds of the engine's settings."""

import pytest

from builder.errors import UserError
from triton_backend.config import EngineConfig


@pytest.mark.parametrize("watermark", [-0.1, 1.0, float("nan")])
def test_a_bad_watermark_is_refused(watermark: float) -> None:
    with pytest.raises(UserError, match="watermark must be a share from 0 to below 1; got"):
        EngineConfig(watermark=watermark)


def test_there_is_at_least_one_candidate() -> None:
    assert EngineConfig(num_candidates=1).num_candidates == 1
    with pytest.raises(UserError, match="num_candidates must be at least 1; got 0"):
        EngineConfig(num_candidates=0)


@pytest.mark.parametrize(
    "name",
    ["max_waiting", "max_waiting_tokens", "max_chunk_tokens", "max_draft_tokens"],
)
def test_bounds_are_at_least_1(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be at least 1; got 0"):
        EngineConfig(**{name: 0})


@pytest.mark.parametrize("ttl_s", [0, -1.0, float("nan")])
def test_a_time_to_live_is_above_0(ttl_s: float) -> None:
    with pytest.raises(UserError, match="cache_ttl_s must be above 0"):
        EngineConfig(cache_ttl_s=ttl_s)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown policy 'srtp'. Did you mean srpt\?.*fair, fcfs"):
        EngineConfig(policy="srtp")
