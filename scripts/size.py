"""Print the size of every source file and its largest function, and fail on what is too large.

Small files and functions are a feature of this project; this table keeps them so. Usage: size.py [--totals].
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("builder", "plugins", "triton_backend", "scripts", "tests")
SOURCES = ("builder", "plugins", "triton_backend")
SUFFIXES = (".py", ".cpp", ".h", ".cu", ".cuh")
WARN_LINES = 300
MAX_LINES = 400
MAX_STATEMENTS = 40
EXCEPTIONS: dict[str, str] = {}
"""File -> why it may pass the limits."""


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    lines: int
    statements: int


@dataclass(frozen=True, slots=True)
class File:
    path: str
    lines: int
    functions: tuple[Function, ...]

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @property
    def largest(self) -> Function:
        """The function with the most statements; an empty one where there is none."""
        return max(self.functions, key=lambda f: f.statements, default=Function("", 0, 0))


def measure(root: Path) -> list[File]:
    """Measure every source file under `root`, in order of path."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*")))
    return [
        File(str(path.relative_to(root)), len(text.splitlines()), functions)
        for path in paths
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts
        for text in [path.read_text()]
        for functions in [tuple(functions_of(text)) if path.suffix == ".py" else ()]
    ]


def functions_of(source: str) -> Iterator[Function]:
    """Measure every function of Python `source`; the docstring is no statement, inner functions count."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
            statements -= ast.get_docstring(node, clean=False) is not None
            yield Function(
                node.name, (node.end_lineno or node.lineno) - node.lineno + 1, statements
            )


def problems(files: list[File]) -> tuple[list[str], list[str]]:
    """Give the failures and the warnings of `files`; an exception that no longer applies is a failure."""
    over = {
        file.path: reason
        for file in files
        for reason in [
            f"{file.lines} lines, at most {MAX_LINES}"
            if file.lines > MAX_LINES
            else f"{file.largest.name} has {file.largest.statements} statements, at most {MAX_STATEMENTS}"
            if file.largest.statements > MAX_STATEMENTS
            else None
        ]
        if reason
    }
    failures = [f"{path}: {reason}" for path, reason in over.items() if path not in EXCEPTIONS]
    failures += [f"{path}: needs no exception" for path in EXCEPTIONS if path not in over]
    warnings = [
        f"{file.path}: {file.lines} lines, more than {WARN_LINES}: does it still hold one concept?"
        for file in files
        if WARN_LINES < file.lines <= MAX_LINES
    ]
    return failures, warnings


def table(files: list[File]) -> Iterator[str]:
    """Lay out one line per file."""
    yield f"{'lines':>6} {'functions':>9} {'statements':>10}  file, its largest function"
    for file in files:
        largest = file.largest
        yield (
            f"{file.lines:>6} {len(file.functions):>9} {largest.statements:>10}"
            f"  {file.path} {largest.name}".rstrip()
        )
    yield ""


def totals(files: list[File]) -> Iterator[str]:
    """Lay out one line per package, and test lines per source line."""
    yield f"{'package':<16} {'files':>6} {'lines':>7} {'median file':>12} {'median function':>16} {'largest':>8}"
    for package in PACKAGES:
        own = [file for file in files if file.package == package]
        lengths = [file.lines for file in own if file.lines] or [0]
        bodies = [function.lines for file in own for function in file.functions] or [0]
        yield (
            f"{package:<16} {len(own):>6} {sum(lengths):>7} {median(lengths):>12.0f}"
            f" {median(bodies):>16.0f} {max(lengths):>8}"
        )
    sources = sum(file.lines for file in files if file.package in SOURCES)
    tests = sum(file.lines for file in files if file.package == "tests")
    yield f"test lines per source line: {tests / max(sources, 1):.2f}"


def main() -> int:
    """Print the table and return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--totals", action="store_true", help="leave out the line per file")
    options = parser.parse_args()
    files = measure(ROOT)
    failures, warnings = problems(files)
    lines = [*([] if options.totals else table(files)), *totals(files)]
    print("\n".join([*lines, *(f"warning: {line}" for line in warnings)]))
    for line in failures:
        print(f"too large: {line}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
