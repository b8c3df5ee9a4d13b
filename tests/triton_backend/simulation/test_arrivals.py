"""Streams are Poisson, the same for one seed, and rates change only the time; traces are read or refused."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from builder.errors import UserError
from triton_backend.simulation.arrivals import (
    Arrival,
    at_rate,
    draw_arrivals,
    mean_rate,
    read_trace,
)
from triton_backend.simulation.lengths import read_lengths


def draw(count: int = 5000, seed: int = 3) -> list[Arrival]:
    lengths = read_lengths("exponential:100")
    return draw_arrivals(count, prompt=lengths, answer=lengths, max_seq_len=200, seed=seed)


def test_gaps_are_as_irregular_as_a_poisson_stream() -> None:
    times = [arrival.at_s for arrival in draw()]
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert fmean(gaps) == pytest.approx(1.0, rel=0.05)
    assert pstdev(gaps) == pytest.approx(1.0, rel=0.08)


def test_prompt_and_answer_fit_together() -> None:
    for arrival in draw():
        assert arrival.num_prompt >= 1
        assert arrival.num_answer >= 1
        assert arrival.num_prompt + arrival.num_answer <= 200


def test_one_seed_gives_one_stream() -> None:
    assert draw() == draw()
    assert draw() != draw(seed=4)


def test_of_four_tenants_the_first_has_about_half_and_nothing_else_changes() -> None:
    lengths = read_lengths("exponential:100")
    several = draw_arrivals(
        5000, prompt=lengths, answer=lengths, max_seq_len=200, seed=3, num_tenants=4
    )
    counts = Counter(arrival.tenant for arrival in several)
    assert counts["1"] == pytest.approx(5000 * 12 / 25, rel=0.05)
    assert counts["4"] == pytest.approx(5000 * 3 / 25, rel=0.1)
    assert [replace(arrival, tenant="1") for arrival in several] == draw()


def test_a_rate_changes_the_time_and_nothing_else() -> None:
    slow = draw(count=100)
    fast = at_rate(slow, 20.0)
    assert mean_rate(fast) == pytest.approx(20.0)
    for before, after in zip(slow, fast, strict=True):
        assert replace(after, at_s=before.at_s) == before


def test_a_trace_of_csv_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("at_s,num_prompt,num_answer,tenant\n2.5,10,3,\n1,20,4,a\n")
    assert read_trace(path) == [Arrival(1.0, 20, 4, tenant="a"), Arrival(2.5, 10, 3)]


def test_a_trace_of_json_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"at_s": 0, "num_prompt": 9, "num_answer": 2, "prefix": "system", "num_prefix": 8}\n\n'
        '{"at_s": 1, "num_prompt": 9, "num_answer": 2, "priority": -1}\n'
    )
    assert read_trace(path) == [
        Arrival(0.0, 9, 2, prefix="system", num_prefix=8),
        Arrival(1.0, 9, 2, priority=-1),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "at_s,num_prompt\n1,2\n",
            "line 2 must have at_s, num_prompt, num_answer.*missing: num_answer",
        ),
        ("at_s,num_prompt,num_answer,user\n1,2,3,a\n", "unknown: user"),
        ("at_s,num_prompt,num_answer\n1,2,3\n1,2.5,3\n", "line 3: num_prompt can't be read as int"),
        ("at_s,num_prompt,num_answer\nnan,2,3\n", "at_s must be from 0"),
        ("at_s,num_prompt,num_answer\n-1,2,3\n", "at_s must be from 0"),
        ("at_s,num_prompt,num_answer\n1,0,3\n", "num_prompt and num_answer from 1"),
        ("at_s,num_prompt,num_answer,num_prefix\n1,3,3,3\n", "num_prefix must be from 0 to below"),
        ("at_s,num_prompt,num_answer\n1,2,3,4\n", "unknown: None"),
        ("at_s,num_prompt,num_answer\n", "has 0 requests"),
        ("", "has 0 requests"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "message"), [("{\n", "line 1 is not JSON"), ("[1]\n", "line 1 must be an object")]
)
def test_a_wrong_line_of_json_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_trace(path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.csv can't be read"):
        read_trace(tmp_path / "none.csv")


def test_a_trace_that_comes_at_once_has_no_rate() -> None:
    with pytest.raises(UserError, match="all requests of the trace come at 0 s"):
        mean_rate([Arrival(0.0, 1, 1)])
