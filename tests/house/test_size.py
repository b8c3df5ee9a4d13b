"""The size table: what it counts, and what it refuses."""

from pathlib import Path

import pytest

from scripts import size

SOURCE = '''
def outer(a):
    """Not a statement."""
    if a:
        return 1

    def inner():
        return 2

    return inner()
'''


def file(*, lines: int = 10, statements: int = 3, path: str = "builder/x.py") -> size.File:
    return size.File(path, lines, (size.Function("f", 5, statements),))


def test_the_tree_is_within_the_limits() -> None:
    failures, _ = size.problems(size.measure(size.ROOT))
    assert failures == []


def test_statements_are_counted_without_the_docstring_and_with_inner_functions() -> None:
    counted = {function.name: function for function in size.functions_of(SOURCE)}
    assert counted["outer"].statements == 5
    assert counted["inner"].statements == 1
    assert counted["outer"].lines == 9


@pytest.mark.parametrize(
    ("lines", "failures", "warnings"), [(300, 0, 0), (301, 0, 1), (400, 0, 1), (401, 1, 0)]
)
def test_lines_warn_and_then_fail(lines: int, failures: int, warnings: int) -> None:
    found = size.problems([file(lines=lines)])
    assert [len(part) for part in found] == [failures, warnings]


@pytest.mark.parametrize(("statements", "failures"), [(40, 0), (41, 1)])
def test_long_functions_fail_by_name(statements: int, failures: int) -> None:
    found, _ = size.problems([file(statements=statements)])
    assert len(found) == failures
    assert all("f has 41 statements" in line for line in found)


def test_a_listed_exception_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(size.EXCEPTIONS, "builder/x.py", "a table of names")
    assert size.problems([file(lines=500)])[0] == []


def test_an_exception_that_no_longer_applies_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(size.EXCEPTIONS, "builder/x.py", "a table of names")
    assert size.problems([file()])[0] == ["builder/x.py: needs no exception"]


def test_c_sources_count_by_their_lines(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "op" / "cpu"
    folder.mkdir(parents=True)
    (folder / "kernel.cpp").write_text("int main() {}\n" * 401)
    measured = size.measure(tmp_path)
    assert [(found.path, found.lines) for found in measured] == [("plugins/op/cpu/kernel.cpp", 401)]
    assert size.problems(measured)[0]


def test_the_totals_say_test_lines_per_source_line() -> None:
    files = [file(lines=100), file(lines=150, path="tests/test_x.py")]
    assert list(size.totals(files))[-1] == "test lines per source line: 1.50"
