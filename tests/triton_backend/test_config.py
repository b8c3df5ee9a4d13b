"""Bounds of the engine's settings."""

import pytest

from builder.errors import UserError
from triton_backend.config import COUNTS, EngineConfig


def repr_of(value: object) -> str:
    """Name a case; Python refuses to print very long integers."""
    return value.__class__.__name__


@pytest.mark.parametrize("watermark", [-0.1, 1.0, float("nan")])
def test_a_bad_watermark_is_refused(watermark: float) -> None:
    with pytest.raises(UserError, match="watermark must be a share from 0 to below 1; got"):
        EngineConfig(watermark=watermark)


def test_there_is_at_least_one_candidate() -> None:
    assert EngineConfig(num_candidates=1).num_candidates == 1
    with pytest.raises(
        UserError, match="num_candidates must be a whole number from 1 to 999999999; got 0"
    ):
        EngineConfig(num_candidates=0)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -(2**20_000), 2**20_000, 2.5, True, "3"], ids=repr_of)
def test_a_count_is_a_whole_number_from_1(name: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{name} must be a whole number from 1 to 999999999; got"):
        EngineConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [2**20_000, "0.5", True, None], ids=repr_of)
def test_what_is_no_share_or_time_is_described(value: object) -> None:
    with pytest.raises(UserError, match="watermark must be a share from 0 to below 1; got"):
        EngineConfig(watermark=value)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cache_ttl_s must be above 0; got"):
        EngineConfig(cache_ttl_s=-value if isinstance(value, int) else [value])  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl_s", [0, -1.0, float("nan")])
def test_a_time_to_live_is_above_0(ttl_s: float) -> None:
    with pytest.raises(UserError, match="cache_ttl_s must be above 0"):
        EngineConfig(cache_ttl_s=ttl_s)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown policy 'srtp'. Did you mean srpt\?.*fair, fcfs"):
        EngineConfig(policy="srtp")
