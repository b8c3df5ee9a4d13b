"""How medians and ratios come of rounds, and when a bar is met."""

from typing import Any

import pytest
from peer_engines.comparison import METRICS, Figures, Ratio, flat, medians, ratio_table, ratios
from rich.console import Console


def report(**changed: float) -> dict[str, Any]:
    found: dict[str, Any] = {metric.key: 100.0 for metric in METRICS}
    found["decode_tps"] = dict.fromkeys(("1", "4", "16", "32"), 100.0)
    return found | changed


def figures(**changed: float) -> Figures:
    return flat(report()) | changed


def ratio_of(label: str, found: list[Ratio]) -> Ratio:
    return next(ratio for ratio in found if ratio.label == label)


def test_decode_figures_of_a_worker_are_laid_out_by_size() -> None:
    assert flat(report(decode_tps={"1": 5, "4": 6, "16": 7, "32": 8}))["decode_16"] == 7


def test_the_median_of_rounds_ignores_a_disturbed_one() -> None:
    rounds = [report(load_s=1), report(load_s=90), report(load_s=2)]
    assert medians(rounds)["load_s"] == 2


def test_the_best_peer_is_found_for_each_figure_apart() -> None:
    peers = {"fast": figures(prefill_tps=400, own_mb=900), "small": figures(own_mb=50)}
    found = ratios(figures(prefill_tps=600, own_mb=25), peers, is_int4=False)
    assert ratio_of("prefill", found).best_peer == "fast"
    assert ratio_of("prefill", found).value == 1.5
    assert ratio_of("own MB", found).best_peer == "small"
    assert ratio_of("own MB", found).value == 0.5


@pytest.mark.parametrize(
    ("key", "label", "value", "met"),
    [
        ("decode_4", "decode 4", 250, True),
        ("decode_4", "decode 4", 249, False),
        ("ttft_warm_ms", "warm ms", 60, True),
        ("ttft_warm_ms", "warm ms", 61, False),
        ("load_s", "load s", 0.3, True),
        ("load_s", "load s", 0.31, False),
        ("rss_mb", "peak MB", 1, None),
    ],
)
def test_a_bar_is_met_at_its_edge_and_not_beyond(
    key: str, label: str, value: float, met: bool | None
) -> None:
    found = ratios(figures(**{key: value}), {"peer": figures()}, is_int4=False)
    assert ratio_of(label, found).met is met


@pytest.mark.parametrize(("is_int4", "met"), [(False, True), (True, False)])
def test_four_bit_weights_must_reach_more_for_one_sequence(is_int4: bool, met: bool) -> None:
    found = ratios(figures(decode_1=220), {"peer": figures()}, is_int4=is_int4)
    assert ratio_of("decode 1", found).met is met


def test_a_missed_bar_is_called_missed() -> None:
    console = Console(width=200, record=True)
    found = ratios(figures(), {"peer": figures()}, is_int4=False)
    console.print(ratio_table("ours", found))
    lines = console.export_text().splitlines()
    assert next(line for line in lines if "decode 16" in line).count("missed") == 1
