"""What commands show while they work: facts, notes and progress, on one stream (stderr by default).

A terminal gets tables and a live bar; anything else gets plain lines without control codes; `Silence` gets
nothing. All three keep every value on one line and escape what could steer a terminal.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TextIO

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from builder.cli.failures import printable
from builder.cli.sizes import format_duration

Rows = Sequence[tuple[str, str]]

MIN_WIDTH = 40
"""Columns of a table even where a terminal has fewer."""


class Stages(Protocol):
    """Told how the work goes on: a named stage of `total` bytes (0 if nobody knows), then bytes done."""

    def stage(self, name: str, total: int) -> None: ...

    def advance(self, amount: int) -> None: ...


class Display(Protocol):
    """Shows things to people, never to programs."""

    def facts(self, title: str, rows: Rows) -> None:
        """Show a titled list of names and values."""
        ...

    def note(self, text: str) -> None:
        """Show one line that deserves attention."""
        ...

    def progress(self) -> AbstractContextManager[Stages]:
        """Show progress while the context is open."""
        ...


def display_on(stream: TextIO) -> Display:
    """Give the display that suits `stream`."""
    return TerminalDisplay(stream) if stream.isatty() else PlainDisplay(stream)


def display_for(*, quiet: bool) -> Display:
    """Give the display of stderr, or silence."""
    return Silence() if quiet else display_on(sys.stderr)


class TerminalDisplay:
    """Tables and live bars for people who watch."""

    def __init__(self, stream: TextIO, *, keep_bars: bool = True) -> None:
        """Show on `stream`; unless they are kept, bars vanish when the work is done."""
        self._console = Console(file=stream, highlight=False, markup=False)
        # rich cuts tables by its own rules below this, down to an assertion that fails.
        self._console.width = max(self._console.width, MIN_WIDTH)
        self._keep_bars = keep_bars

    def facts(self, title: str, rows: Rows) -> None:
        table = Table(
            show_header=False, title=printable(title), title_justify="left", min_width=MIN_WIDTH
        )
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(printable(name)), Text(printable(value)))
        self._console.print(table)

    def note(self, text: str) -> None:
        self._console.print(Text(printable(text), style="yellow"))

    @contextlib.contextmanager
    def progress(self) -> Iterator[Stages]:
        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
        )
        with Bars(*columns, console=self._console, transient=not self._keep_bars) as bars:
            stages = BarStages(bars)
            yield stages
            stages.finish()


class BarStages:
    """One bar a stage; a stage ends when the next begins. Without a total the bar pulses."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def stage(self, name: str, total: int) -> None:
        self.finish()
        self._task = self._bars.add_task(printable(name), total=total or None)

    def advance(self, amount: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, amount)

    def finish(self) -> None:
        """Fill the bar of the stage that is running, if any."""
        if self._task is not None:
            done = self._bars.tasks[self._task].completed
            self._bars.update(self._task, total=done or 1, completed=done or 1)
        self._task = None


class PlainDisplay:
    """Lines for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def facts(self, title: str, rows: Rows) -> None:
        width = max((len(name) for name, _ in rows), default=0)
        click.echo(printable(title), self._stream)
        for name, value in rows:
            click.echo(f"  {printable(name):<{width}}  {printable(value)}", self._stream)

    def note(self, text: str) -> None:
        click.echo(printable(text), self._stream)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Stages]:
        stages = LineStages(self._stream)
        yield stages
        stages.finish()


class LineStages:
    """One line a stage, written when the stage ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._running: tuple[str, float] | None = None

    def stage(self, name: str, total: int) -> None:  # noqa: ARG002 (a line needs no total)
        self.finish()
        self._running = (name, time.monotonic())

    def advance(self, amount: int) -> None:
        pass

    def finish(self) -> None:
        """Write the line of the stage that is running, if any."""
        if self._running is not None:
            name, started = self._running
            took = format_duration(time.monotonic() - started)
            click.echo(f"{printable(name)}: {took}", self._stream)
        self._running = None


class Silence:
    """Shows nothing."""

    def facts(self, title: str, rows: Rows) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def progress(self) -> AbstractContextManager[Stages]:
        return contextlib.nullcontext(self)

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, amount: int) -> None:
        pass
