"""The property suite is worth something only if it goes red: each seeded bug must break a workload."""

import logging

import pytest

from builder.errors import ForerunError
from tests.seeded_bugs.answer_bugs import ANSWER_BUGS
from tests.seeded_bugs.cache_bugs import CACHE_BUGS
from tests.seeded_bugs.copies import Patch, Program, load
from tests.seeded_bugs.fresh_bugs import FRESH_BUGS
from tests.seeded_bugs.planning_bugs import PLANNING_BUGS
from tests.seeded_bugs.shared_bugs import SHARED_BUGS
from tests.triton_backend.serving_run import check_workload
from triton_backend.engine import Engine

GROUPS = (PLANNING_BUGS, CACHE_BUGS, ANSWER_BUGS, SHARED_BUGS, FRESH_BUGS)
BUGS = {name: bug for group in GROUPS for name, bug in group.items()}
RED = (AssertionError, ForerunError, LookupError, StopIteration, ValueError)
"""What a workload ends with where something is wrong; a mistake may also make the program itself stumble."""
NUM_WORKLOADS = 400
"""Most bugs break one of the first five, those of `LATE` none of the first thirty."""
LATE = {
    "a bad word may begin in the prompt",
    "a block to copy is not counted",
    "a run goes on after its end",
    "constrained answers are drafted for",
    "drafts count as computed when blocks are published",
    "drafts do not spend the budget",
    "prompts do not spend what they may have together",
    "repetition divides negative logits too",
    "the first id of a bad word is banned",
    "the least bias is only a bias",
    "the prompt of all choices counts once",
    "those in flight publish what was erased",
    "what is not to be stored is published",
}
"""They take as long as all others together."""
NAMES = [pytest.param(each, marks=pytest.mark.slow if each in LATE else ()) for each in BUGS]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Broken engines log a lot."""
    caplog.set_level(logging.CRITICAL)


def check_workloads(program: Program, count: int = NUM_WORKLOADS) -> None:
    for number in range(count):
        check_workload(program, number)


@pytest.mark.parametrize("name", NAMES)
def test_the_property_suite_finds(name: str) -> None:
    program = load(BUGS[name])
    with pytest.raises(RED) as red:
        check_workloads(program)
    assert "NameError" not in str(red.value), "the patch is no mistake anybody could make"


def test_the_same_workloads_pass_without_a_bug() -> None:
    check_workloads(load(), 30)


def test_a_copy_is_apart_from_the_program() -> None:
    assert load().Engine is not Engine
    assert load(BUGS["seed 0 is no seed"]).Engine.__module__ == Engine.__module__


def test_there_are_at_least_forty_bugs() -> None:
    assert len(BUGS) == sum(map(len, GROUPS)) >= 40
    assert len({(bug.module, bug.old, bug.new) for bug in BUGS.values()}) == len(BUGS)
    assert BUGS.keys() >= LATE


def test_a_patch_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(AssertionError, match="occurs 0 times"):
        load(Patch("scheduler", "no such text", ""))


def test_a_patch_of_a_module_outside_the_engine_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not import"):
        load(Patch("no_such_module", "", ""))
