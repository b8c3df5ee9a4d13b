"""Meters follow what the host says; counters only grow, also when a new host counts from 0."""

from triton_backend.messages import Pong
from triton_backend.metrics import METRICS, Meters


def test_gauges_are_set_and_counters_are_added_to() -> None:
    heard: dict[str, list[int]] = {metric.name: [] for metric in METRICS}
    meters = Meters({name: values.append for name, values in heard.items()})
    for pong in (Pong(1, 2, 30, 4, 5, 60), Pong(0, 0, 30, 0, 9, 60), Pong(0, 0, 30, 0, 2, 7)):
        meters.read(pong)
    assert heard == {
        "forerun_requests_running": [1, 0, 0],
        "forerun_requests_waiting": [2, 0, 0],
        "forerun_kv_blocks": [30, 30, 30],
        "forerun_kv_blocks_used": [4, 0, 0],
        "forerun_steps_total": [5, 4, 2],
        "forerun_generated_tokens_total": [60, 0, 7],
    }


def test_counters_are_named_as_such() -> None:
    for metric in METRICS:
        assert metric.only_grows == metric.name.endswith("_total")
