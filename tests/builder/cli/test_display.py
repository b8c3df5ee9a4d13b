"""Displays on terminals, pipes and nowhere."""

import io

import pytest

from builder.cli.display import PlainDisplay, Silence, TerminalDisplay, display_for, display_on

ROWS = [("source", "tiny [bold]x[/bold]"), ("target", "cpu -> portable: " + "reason " * 30)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use(display: PlainDisplay | TerminalDisplay | Silence) -> None:
    display.facts("Plan", ROWS)
    display.note("warning: [red]\x1b[31m")
    with display.progress() as progress:
        progress.stage("read weights", 10)
        progress.advance(7)
        progress.stage("lower", 0)
        progress.advance(1)


def test_a_terminal_gets_a_terminal_display_and_a_pipe_a_plain_one() -> None:
    assert isinstance(display_on(Terminal()), TerminalDisplay)
    assert isinstance(display_on(io.StringIO()), PlainDisplay)
    assert isinstance(display_for(quiet=True), Silence)
    assert not isinstance(display_for(quiet=False), Silence)


def test_plain_lines_hold_no_control_codes_and_never_wrap() -> None:
    stream = io.StringIO()
    use(PlainDisplay(stream))
    lines = stream.getvalue().splitlines()
    assert lines[:4] == [
        "Plan",
        "  source  tiny [bold]x[/bold]",
        "  target  cpu -> portable: " + "reason " * 30,
        "warning: [red]\\x1b[31m",
    ]
    assert [line.split(":")[0] for line in lines[4:]] == ["read weights", "lower"]
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_a_terminal_gets_a_table_and_bars_with_text_taken_literally() -> None:
    stream = Terminal()
    use(TerminalDisplay(stream))
    shown = stream.getvalue()
    assert "tiny [bold]x[/bold]" in shown
    assert "[red]\\x1b[31m" in shown
    assert "read weights" in shown
    assert "lower" in shown
    assert "100%" in shown


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_terminal_of_hardly_any_columns_gets_its_table_too(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    use(TerminalDisplay(stream))
    assert "reason reason" in stream.getvalue()


def test_the_bar_of_a_failed_stage_is_not_filled() -> None:
    stream = Terminal()

    def fail() -> None:
        with TerminalDisplay(stream).progress() as progress:
            progress.stage("read weights", 10)
            progress.advance(3)
            raise ValueError("disk")

    with pytest.raises(ValueError, match="disk"):
        fail()
    assert "30%" in stream.getvalue()
    assert "100%" not in stream.getvalue()


def test_a_stage_that_failed_gets_no_line() -> None:
    stream = io.StringIO()

    def fail() -> None:
        with PlainDisplay(stream).progress() as progress:
            progress.stage("read weights", 10)
            raise ValueError("disk")

    with pytest.raises(ValueError, match="disk"):
        fail()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("display", [Silence(), PlainDisplay(io.StringIO())])
def test_progress_before_any_stage_is_harmless(display: Silence | PlainDisplay) -> None:
    with display.progress() as progress:
        progress.advance(1)


def test_silence_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    use(Silence())
    assert capsys.readouterr() == ("", "")
