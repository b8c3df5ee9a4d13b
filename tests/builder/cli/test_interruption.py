"""Stop signals end a command like Ctrl-C."""

import os
import signal

import pytest

from builder.cli.interruption import SIGNALS, stop_signals_interrupt


def stopped_by(number: signal.Signals, cleaned: list[signal.Signals]) -> None:
    with stop_signals_interrupt():
        try:
            os.kill(os.getpid(), number)
        finally:
            cleaned.append(number)


def stopped_again_while_cleaning(cleaned: list[signal.Signals]) -> None:
    with stop_signals_interrupt():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            for number in SIGNALS:
                os.kill(os.getpid(), number)
                cleaned.append(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stop_signal_interrupts_the_body(number: signal.Signals) -> None:
    cleaned: list[signal.Signals] = []
    with pytest.raises(KeyboardInterrupt):
        stopped_by(number, cleaned)
    assert cleaned == [number]


def test_further_signals_do_not_disturb_the_clean_up() -> None:
    cleaned: list[signal.Signals] = []
    with pytest.raises(KeyboardInterrupt):
        stopped_again_while_cleaning(cleaned)
    assert cleaned == list(SIGNALS)


def test_afterwards_the_signals_do_what_they_did_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_signals_interrupt():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """`nohup builder serve` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
