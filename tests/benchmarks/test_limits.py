"""How much a step must read and compute, and the limit that follows."""

from dataclasses import replace

import pytest
from limits.machine import level_of
from limits.work import Work, attention_ops, linear_parameters

from builder.artifact.config import ModelConfig, RopeConfig

MODEL = ModelConfig(
    arch="llama",
    vocab_size=100,
    hidden_size=8,
    intermediate_size=16,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    norm_eps=1e-5,
    activation="silu",
    rope=RopeConfig(theta=10_000.0),
    max_positions=64,
    tied_head=True,
)
WORK = Work(weight_bytes=900, kv_bytes=100, linear_ops=3000, attention_ops=1000)


def test_linear_weights_are_those_of_all_seven_matrices() -> None:
    query_and_output, key_and_value, feed_forward = 2 * 8 * 8, 2 * 8 * 4, 3 * 8 * 16
    assert linear_parameters(MODEL) == 3 * (query_and_output + key_and_value + feed_forward)


def test_attention_multiplies_and_adds_twice_per_pair() -> None:
    assert attention_ops(MODEL, pairs=5) == 2 * 2 * 3 * 4 * 2 * 5


def test_a_step_that_reads_long_is_bound_by_memory() -> None:
    seconds, bound = WORK.seconds(gbps=1e-9, tops=1e-8, attention_tops=1e-8)
    assert (seconds, bound) == (pytest.approx(1000), "memory")


def test_a_step_that_computes_long_is_bound_by_that() -> None:
    seconds, bound = WORK.seconds(gbps=1, tops=1e-9, attention_tops=5e-10)
    assert (seconds, bound) == (pytest.approx(5), "compute")


def test_more_keys_and_values_take_longer() -> None:
    longer = replace(WORK, kv_bytes=1100)
    assert longer.seconds(1e-9, 1, 1)[0] == 2 * WORK.seconds(1e-9, 1, 1)[0]


@pytest.mark.parametrize(
    ("num_bytes", "level"), [(50, "L1"), (400, "L2"), (401, "L3"), (1000, "L3"), (1001, "memory")]
)
def test_a_level_is_the_nearest_that_holds_the_bytes(num_bytes: int, level: str) -> None:
    caches = {"L1": 25, "L2": 200, "L3": 1000}
    assert level_of(num_bytes, 2, caches) == level
