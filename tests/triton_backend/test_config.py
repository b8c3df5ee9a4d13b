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
