"""The property suite is worth something only if it goes red: each seeded bug must break a workload."""

import logging

import pytest

from builder.errors import ForerunError
from tests.seeded_bugs.answer_bugs import ANSWER_BUGS
from tests.seeded_bugs.cache_bugs import CACHE_BUGS
from tests.seeded_bugs.copies import Patch, Program, load
from tests.seeded_bugs.fresh_bugs import FRESH_BUGS
from tests.seeded_bugs.planning_bugs import PLANNING_BUGS
from tests.triton_backend.serving_run import check_workload
from triton_backend.engine import Engine

GROUPS = (PLANNING_BUGS, CACHE_BUGS, ANSWER_BUGS, FRESH_BUGS)
BUGS = {name: bug for group in GROUPS for name, bug in group.items()}
RED = (AssertionError, ForerunError, LookupError, StopIteration, ValueError)
"""What a workload ends with where something is wrong; a mistake may also make the program itself stumble."""
NUM_WORKLOADS = 300
"""Most bugs break one of the first five."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Broken engines log a lot."""
    caplog.set_level(logging.CRITICAL)


def check_workloads(program: Program) -> None:
    for number in range(NUM_WORKLOADS):
        check_workload(program, number)


@pytest.mark.parametrize("name", BUGS)
def test_the_property_suite_finds(name: str) -> None:
    program = load(BUGS[name])
    with pytest.raises(RED) as red:
        check_workloads(program)
    assert "NameError" not in str(red.value), "the patch is no mistake anybody could make"


def test_the_same_workloads_pass_without_a_bug() -> None:
    check_workloads(load())


def test_a_copy_is_apart_from_the_program() -> None:
    assert load().Engine is not Engine
    assert load(BUGS["seed 0 is no seed"]).Engine.__module__ == Engine.__module__


def test_there_are_at_least_forty_bugs() -> None:
    assert len(BUGS) == sum(map(len, GROUPS)) >= 40
    assert len({(bug.module, bug.old, bug.new) for bug in BUGS.values()}) == len(BUGS)


def test_a_patch_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(AssertionError, match="occurs 0 times"):
        load(Patch("scheduler", "no such text", ""))


def test_a_patch_of_a_module_outside_the_engine_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not import"):
        load(Patch("no_such_module", "", ""))
