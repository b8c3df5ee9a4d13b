"""The committed table of results, from a JUnit report."""

import pytest

from scripts import results

REPORT = """
<testsuites><testsuite>
<testcase classname="tests.builder.graph.test_ops" name="a" time="1.5"/>
<testcase classname="tests.builder.graph.passes.test_fold" name="b" time="0.5"><skipped/></testcase>
<testcase classname="tests.triton_backend.test_pool" name="c" time="0.25"><failure/></testcase>
<testcase classname="tests.triton_backend.test_pool.TestPool" name="d" time="0.25"/>
</testsuite></testsuites>
"""


@pytest.mark.parametrize(
    ("classname", "group"),
    [
        ("tests.builder.graph.test_ops", "builder/graph"),
        ("tests.builder.graph.passes.test_fold", "builder/graph"),
        ("tests.triton_backend.test_pool.TestPool", "triton_backend"),
        ("tests.test_all", "tests"),
    ],
)
def test_a_group_is_a_folder_of_tests(classname: str, group: str) -> None:
    assert results.group_of(classname) == group


def test_cases_are_counted_by_group_and_outcome() -> None:
    assert results.tally(REPORT) == {
        "builder/graph": results.Tally(passed=1, skipped=1, seconds=2.0),
        "triton_backend": results.Tally(passed=1, failed=1, seconds=0.5),
    }


def test_the_table_ends_with_the_sum() -> None:
    text = results.render(results.tally(REPORT), date="2026-11-29", machine="2 cores")
    assert "on 2026-11-29: 2 cores." in text
    assert text.endswith("| **all** | 2 | 1 | 1 | 2.5 |\n")


def test_the_machine_is_described_without_its_name() -> None:
    assert results.platform.node() not in results.machine()
