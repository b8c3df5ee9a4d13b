"""What all executors share: candidates from full rows, and the checks of a step."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.config import KVGeometry, KVGroup, Limits
from builder.artifact.step import RowAsks, StepTensors
from builder.errors import EngineError
from builder.targets.executor import check_step, result_from_rows

LIMITS = Limits(max_seq_len=64, max_num_seqs=4, max_num_tokens=8, max_logit_rows=4, num_blocks=10)
KV = KVGeometry(16, (KVGroup((0,), 1, 16, "float32"),))
STEP = StepTensors(
    token_ids=np.array([1, 2, 3], np.int32),
    positions=np.array([0, 1, 7], np.int32),
    query_start=np.array([0, 2, 3], np.int32),
    seq_lens=np.array([2, 8], np.int32),
    block_tables=np.array([[[1], [2]]], np.int32),
    slot_mapping=np.array([[16, 17, 39]], np.int32),
    logit_rows=np.array([1, 2], np.int32),
    block_copies=np.zeros((0, 3), np.int32),
)
ASKS = RowAsks(0, np.zeros(2, np.float32))


def asks(num_candidates: int, *temperatures: float) -> RowAsks:
    return RowAsks(num_candidates, np.array(temperatures, np.float32))


@given(
    seed=st.integers(0, 1 << 30),
    size=st.sampled_from([1, 2, 63, 64, 65, 259, 1000, 9000, 20_000]),
    count=st.sampled_from([1, 2, 8, 64, 100]),
    distinct=st.sampled_from([1, 2, 5, 1 << 20]),
)
def test_candidates_are_the_largest_with_ties_by_id(
    seed: int, size: int, count: int, distinct: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, distinct, (2, size)).astype(np.float32)
    result = result_from_rows(rows, asks(count, 0, 0))
    for j, row in enumerate(rows):
        order = np.lexsort((np.arange(size), -row))[:count]
        assert result.candidate_ids[j].tolist() == order.tolist()
        assert result.candidate_logits[j].tolist() == row[order].tolist()
        assert result.argmax[j] == order[0]


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
def test_logsumexp_is_taken_at_the_temperature_of_each_row(temperature: float) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 500), dtype=np.float32) * 20
    result = result_from_rows(rows, asks(0, temperature, 0.0, 1.0))
    exact = [
        np.logaddexp.reduce(rows[j].astype(np.float64) / t) for j, t in ((0, temperature), (2, 1.0))
    ]
    assert result.logsumexp[0] == pytest.approx(exact[0], rel=1e-6)
    assert result.logsumexp[1] == 0
    assert result.logsumexp[2] == pytest.approx(exact[1], rel=1e-6)


def test_no_candidates_are_looked_for_when_none_are_asked() -> None:
    result = result_from_rows(np.eye(3, 70, dtype=np.float32), asks(0, 0, 0, 0))
    assert result.candidate_ids.shape == (3, 0)
    assert result.argmax.tolist() == [0, 1, 2]
    assert result.full_row(1).tolist() == np.eye(3, 70)[1].tolist()


def test_the_largest_of_a_row_without_numbers_is_told_to_be_none() -> None:
    rows = np.zeros((3, 70), np.float32)
    rows[0, 5], rows[1, 6], rows[2, 7] = np.nan, np.inf, 1.0
    assert result_from_rows(rows, asks(0, 0, 0, 0)).argmax.tolist() == [-1, -1, 7]


def test_a_row_does_not_depend_on_its_mates() -> None:
    rows = np.random.default_rng(1).standard_normal((8, 49_152), dtype=np.float32)
    together = result_from_rows(rows, asks(64, *[0.8] * 8))
    alone = result_from_rows(rows[5:6], asks(64, 0.8))
    assert together.logsumexp[5] == alone.logsumexp[0]
    np.testing.assert_array_equal(together.candidate_ids[5], alone.candidate_ids[0])


def test_a_sound_step_passes() -> None:
    check_step(STEP, ASKS, limits=LIMITS, kv=KV)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seq_lens": np.array([2, 65], np.int32)}, "longest sequence"),
        ({"query_start": np.array([0, 3, 3], np.int32)}, "empty sequence"),
        ({"query_start": np.array([0, 1, 2], np.int32)}, "belong to none"),
        ({"query_start": np.array([-3, 1, 3], np.int32)}, "belong to none"),
        (
            {
                "query_start": np.array([0], np.int32),
                "seq_lens": np.zeros(0, np.int32),
                "block_tables": np.zeros((1, 0, 1), np.int32),
            },
            "empty sequence",
        ),
        ({"slot_mapping": np.array([[16, 17, 3]], np.int32)}, "reserved block"),
        ({"slot_mapping": np.array([[16, 17, 160]], np.int32)}, "outside the pool"),
    ],
)
def test_a_step_that_breaks_the_contract_is_refused(
    change: dict[str, np.ndarray], named: str
) -> None:
    with pytest.raises(EngineError, match=named):
        check_step(replace(STEP, **change), ASKS, limits=LIMITS, kv=KV)


WRONG: dict[str, Callable[[np.ndarray], object]] = {
    "int64": lambda array: array.astype(np.int64),
    "uint32": lambda array: array.astype(np.uint32),
    "float32": lambda array: array.astype(np.float32),
    "scalar": lambda array: array.sum(),
    "deeper": lambda array: array[None],
    "list": lambda array: array.tolist(),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", [f.name for f in fields(StepTensors) if f.name != "adapter_slots"])
def test_an_array_of_another_type_or_shape_is_refused_by_its_name(name: str, wrong: str) -> None:
    step = replace(STEP, **{name: WRONG[wrong](getattr(STEP, name))})
    with pytest.raises(EngineError, match=f"bad step: {name} is .*, not int32 of"):
        check_step(step, ASKS, limits=LIMITS, kv=KV)


@pytest.mark.parametrize("name", ["positions", "query_start", "slot_mapping", "block_copies"])
def test_an_array_that_is_too_short_is_refused_by_its_name(name: str) -> None:
    step = replace(STEP, **{name: getattr(STEP, name)[..., :-1]})
    with pytest.raises(EngineError, match=f"bad step: {name} is .*, not int32 of"):
        check_step(step, ASKS, limits=LIMITS, kv=KV)


@pytest.mark.parametrize(
    "tables", [STEP.block_tables[0], STEP.block_tables[:0], STEP.block_tables[:, :1]]
)
def test_tables_of_other_groups_or_sequences_are_refused(tables: np.ndarray) -> None:
    with pytest.raises(EngineError, match="block_tables is int32 of shape"):
        check_step(replace(STEP, block_tables=tables), ASKS, limits=LIMITS, kv=KV)


@pytest.mark.parametrize("temperatures", [np.zeros(2), np.zeros((2, 1), np.float32), [0.0, 0.0]])
def test_temperatures_of_another_type_or_shape_are_refused(temperatures: object) -> None:
    with pytest.raises(EngineError, match="bad step: temperatures is"):
        check_step(STEP, RowAsks(0, temperatures), limits=LIMITS, kv=KV)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 2.5, None, "3"])
def test_a_number_of_candidates_that_is_none_is_refused(count: object) -> None:
    wrong = RowAsks(count, ASKS.temperatures)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="num_candidates"):
        check_step(STEP, wrong, limits=LIMITS, kv=KV)


@pytest.mark.parametrize(
    ("limit", "named"),
    [("max_num_tokens", "tokens"), ("max_num_seqs", "sequences"), ("max_logit_rows", "logit rows")],
)
def test_a_step_beyond_a_limit_names_it(limit: str, named: str) -> None:
    with pytest.raises(EngineError, match=f"{named}; the engine was compiled for 1"):
        check_step(STEP, ASKS, limits=replace(LIMITS, **{limit: 1}), kv=KV)


def test_asks_must_match_the_rows() -> None:
    with pytest.raises(EngineError, match="temperatures"):
        check_step(STEP, asks(0, 0.0), limits=LIMITS, kv=KV)


@pytest.mark.parametrize("size", [5, 9000])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_row_that_is_no_number_is_told_by_its_log_sum_exp(size: int, wrong: float) -> None:
    rows = np.zeros((2, size), np.float32)
    rows[0, 3] = wrong
    result = result_from_rows(rows, asks(4, 1.0, 1.0))
    assert np.isnan(result.logsumexp[0])
    assert result.logsumexp[1] == pytest.approx(np.log(size))
    assert result.candidate_ids.tolist()[1] == [0, 1, 2, 3]
