"""Steps cost what the line says; costs are read and fitted."""

from pathlib import Path

import numpy as np
import pytest

from builder.artifact.step import StepTensors
from builder.errors import UserError
from triton_backend.simulation.cost import CostModel, VirtualClock, fit_cost, read_cost


def step_at(*positions: int) -> StepTensors:
    count = len(positions)
    none = np.zeros((1, 1, 1), np.int32)
    return StepTensors(
        token_ids=np.zeros(count, np.int32),
        positions=np.array(positions, np.int32),
        query_start=np.array([0, count], np.int32),
        seq_lens=np.array([count], np.int32),
        block_tables=none,
        slot_mapping=none[0],
        logit_rows=np.zeros(1, np.int32),
        block_copies=np.zeros((0, 3), np.int32),
    )


def test_a_step_costs_its_tokens_and_what_they_attend_to() -> None:
    cost = CostModel(step_s=1.0, token_s=0.1, context_s=0.001)
    assert cost.seconds(step_at(0)) == pytest.approx(1.0 + 0.1 + 0.001)
    assert cost.seconds(step_at(0, 1, 2)) == pytest.approx(1.0 + 0.3 + 0.006)
    assert cost.seconds(step_at(99)) == pytest.approx(1.0 + 0.1 + 0.1)


def test_time_passes_only_when_told_to() -> None:
    clock = VirtualClock()
    clock.wait(2.0)
    clock.wait_until(1.0)
    assert clock() == 2.0
    clock.wait_until(5.0)
    assert clock() == 5.0


@pytest.mark.parametrize("known", [(0.01, 0.002, 3e-6), (0.0, 0.002, 0.0), (0.01, 0.0, 0.0)])
def test_a_fit_finds_the_line_behind_measured_steps(known: tuple[float, float, float]) -> None:
    measured = [
        (tokens, context, known[0] + known[1] * tokens + known[2] * context)
        for tokens in (1, 4, 16, 128)
        for context in (tokens, 50 * tokens, 900 * tokens)
    ]
    fitted = fit_cost(measured)
    assert (fitted.step_s, fitted.token_s, fitted.context_s) == pytest.approx(known, abs=1e-9)


def test_no_fitted_time_is_negative() -> None:
    fitted = fit_cost([(1, 100, 0.5), (1, 1000, 0.4), (2, 100, 0.9), (2, 1000, 0.8), (4, 50, 2.0)])
    assert min(fitted.step_s, fitted.token_s, fitted.context_s) >= 0


def test_costs_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text('{"step_s": 0.5, "token_s": 1}')
    assert read_cost(path) == CostModel(step_s=0.5, token_s=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"setp_s": 1}', "must be one JSON object with the fields context_s, step_s, token_s"),
        ("[1]", r"cost\.json: Expected `object`, got `array`"),
        ("{", r"cost\.json is not JSON that can be read"),
        ("[" * 60_000, r"cost\.json is not JSON that can be read"),
        ('{"token_s": NaN}', r"cost\.json is not JSON that can be read"),
        ('{"step_s": "1"}', r"cost\.json: Expected `float`, got `str`"),
        ('{"step_s": true}', r"cost\.json: Expected `float`, got `bool`"),
        ('{"token_s": -1}', "cost token_s must be from 0"),
        ('{"token_s": 1e300}', "cost token_s must be from 0"),
        ('{"step_s": 0, "token_s": 0}', "a step must take time"),
        ('{"step_s": 1e-300, "token_s": 0}', "a step must take time"),
    ],
)
def test_wrong_costs_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cost.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_cost(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json can't be read"):
        read_cost(tmp_path / "none.json")


@pytest.mark.parametrize(
    "seconds",
    [float("nan"), float("inf"), 2**20_000, True, "1"],
    ids=["nan", "inf", "long", "true", "text"],
)
def test_what_is_no_time_is_no_cost(seconds: float) -> None:
    with pytest.raises(UserError, match="cost step_s must be"):
        CostModel(step_s=seconds)
