"""Meters follow what the host says; counters only grow, also when a new host counts from 0."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from triton_backend.messages import Durations, Pong
from triton_backend.metrics import METRICS, Meters
from triton_backend.reading import COUNTERS
from triton_backend.reasons import Refusal, WaitReason
from triton_backend.request import FinishReason

BY_SERIES = {metric.series: metric for metric in METRICS}


class Heard:
    """What each meter was told."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)
        self.meters = Meters({name: self.values[name].append for name in BY_SERIES})


def pong(**given: object) -> Pong:
    sizes = {"num_running": 0, "num_waiting": 0, "num_blocks": 30}
    return Pong(**{**sizes, "num_used_blocks": 0, "num_cached_blocks": 0, **given})  # type: ignore[arg-type]


def test_gauges_are_set_when_they_change() -> None:
    heard = Heard()
    for running in (1, 1, 0, 2):
        heard.meters.read(pong(num_running=running))
    assert heard.values["forerun_requests_running"] == [1, 0, 2]
    assert heard.values["forerun_kv_blocks"] == [30]


def test_counters_are_added_to() -> None:
    heard = Heard()
    for steps in (5, 9, 9, 12):
        heard.meters.read(pong(counters={"num_steps": steps}))
    assert heard.values["forerun_steps_total"] == [5, 4, 3]


def test_a_model_without_meters_hears_in_vain() -> None:
    Meters({}).read(pong(num_running=1))


def test_a_new_host_counts_from_0() -> None:
    heard = Heard()
    for tokens in (60, 7, 9):
        heard.meters.read(pong(counters={"num_generated_tokens": tokens}))
    assert heard.values["forerun_generated_tokens_total"] == [60, 7, 2]


def test_every_block_is_used_cached_or_free() -> None:
    told = pong(num_used_blocks=7, num_cached_blocks=11)
    parts = ("used", "cached", "free")
    values = [BY_SERIES[f"forerun_kv_blocks_{part}"].value(told) for part in parts]
    assert values == [7, 11, 12]


@pytest.mark.parametrize("reason", WaitReason)
def test_those_who_wait_are_told_by_reason(reason: WaitReason) -> None:
    told = pong(num_waiting=3, waits_for=reason)
    waiting = {
        metric.labels["reason"]: metric.value(told)
        for metric in METRICS
        if metric.name == "forerun_requests_waiting"
    }
    assert waiting == {other: 3 * (other == reason) for other in WaitReason}


def test_refusals_and_ends_are_told_by_reason() -> None:
    told = pong(
        refused={reason: 1 + place for place, reason in enumerate(Refusal)},
        finished={reason: 10 + place for place, reason in enumerate(FinishReason)},
    )
    for place, reason in enumerate(Refusal):
        series = f'forerun_requests_refused_total{{reason="{reason}"}}'
        assert BY_SERIES[series].value(told) == 1 + place
    for place, reason in enumerate(FinishReason):
        series = f'forerun_requests_finished_total{{reason="{reason}"}}'
        assert BY_SERIES[series].value(told) == 10 + place


def test_a_histogram_is_told_as_prometheus_reads_it() -> None:
    counts = [0] * 14
    counts[0], counts[2], counts[-1] = 5, 2, 1
    told = pong(seconds={"end_to_end_s": Durations(tuple(counts), 7.5)})
    name = "forerun_end_to_end_seconds"
    values = {
        m.series.removeprefix(name): m.value(told) for m in METRICS if m.name.startswith(name)
    }
    assert values.pop("_sum") == 7.5
    assert values.pop("_count") == 8
    buckets = list(values.items())
    assert buckets[0] == ('_bucket{le="0.05"}', 5)
    assert buckets[2] == ('_bucket{le="0.25"}', 7)
    assert buckets[-2] == ('_bucket{le="300.0"}', 7)
    assert buckets[-1] == ('_bucket{le="+Inf"}', 8)


def test_what_the_host_leaves_out_is_0() -> None:
    for metric in METRICS:
        if not metric.name.startswith("forerun_kv_blocks"):
            assert metric.value(pong()) == 0


def test_each_series_is_there_once_and_a_counter_is_named_as_such() -> None:
    assert len(BY_SERIES) == len(METRICS)
    for metric in METRICS:
        assert metric.only_grows == metric.name.endswith(("_total", "_bucket", "_sum", "_count"))
        assert metric.description


def test_each_counter_of_the_reading_has_a_series() -> None:
    told = pong(counters={name: 100 + place for place, name in enumerate(COUNTERS)})
    values = {metric.value(told) for metric in METRICS if metric.name.endswith("_total")}
    assert values >= set(range(100, 100 + len(COUNTERS)))


def test_one_family_has_one_kind_and_one_description() -> None:
    families: dict[str, set[tuple[bool, str]]] = defaultdict(set)
    for metric in METRICS:
        families[metric.name].add((metric.only_grows, metric.description))
    assert {len(each) for each in families.values()} == {1}


def test_the_table_of_the_readme_is_this_one() -> None:
    """Name, kind and words of each metric; of a histogram one row for all its counters."""
    expected: dict[str, tuple[str, str]] = {}
    for metric in METRICS:
        name = re.sub("_(bucket|sum|count)$", "", metric.name)
        kind = "histogram" if name != metric.name else "counter" if metric.only_grows else "gauge"
        reasons = [m.labels["reason"] for m in METRICS if m.name == name and "reason" in m.labels]
        told = f" (`reason`: {', '.join(reasons)})" if reasons else ""
        expected[name] = (kind, metric.description + told)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| `(forerun_\w+)` \| (\w+) \| (.*) \|$", readme, re.M)
    assert {name: (kind, words) for name, kind, words in rows} == expected
