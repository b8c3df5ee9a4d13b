"""Unknown names are told with what was meant, however long they are."""

import time

from builder.errors import MAX_SHOWN, known_names, unknown_name


def test_an_unknown_name_is_told_with_close_ones_and_all() -> None:
    assert unknown_name("policy", "fcsf", ["srpt", "fcfs"]) == (
        "unknown policy 'fcsf'. Did you mean fcfs? Known: fcfs, srpt."
    )
    assert known_names("x", []) == " Known: none."


def test_a_name_as_long_as_is_shown_is_whole() -> None:
    assert unknown_name("policy", "x" * MAX_SHOWN, ["a"]) == (
        f"unknown policy '{'x' * MAX_SHOWN}'. Known: a."
    )


def test_a_long_name_is_cut_and_costs_nothing() -> None:
    name = "fcfs, srpt " * 100_000
    start = time.thread_time()
    message = unknown_name("policy", name, [f"fcfs{number}" for number in range(100)])
    known_names(name, ["fcfs"])
    assert time.thread_time() - start < 1.0
    assert f"unknown policy {name[:MAX_SHOWN]!r}, cut from 1100000 characters." in message
