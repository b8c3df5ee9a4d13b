"""The rule of skips: a test that was skipped, or expected to fail, turns the run red unless it is listed.

`tests/allowed_skips.txt` lists them, one a line: the test's id (without its parameters), a space, and why.
The tests that send signals need a process that heeds them; a shell's background job is started deaf to Ctrl-C.
"""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

LIST = Path(__file__).with_name("allowed_skips.txt")


class SkipRule:
    """Collects skips as pytest reports them and judges them at the end."""

    def __init__(self, allowed: set[str]) -> None:
        self.allowed = allowed
        self.unlisted: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.judge(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.judge(report)

    def judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Note a skipped test or module; pytest also reports an expected failure as skipped."""
        if report.skipped and report.nodeid.partition("[")[0] not in self.allowed:
            self.unlisted.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unlisted and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.unlisted:
            terminalreporter.write_line(
                f"skipped, and not listed in {LIST.name}: {nodeid}", red=True
            )


def allowed_skips(text: str) -> set[str]:
    """Read the ids out of the list; every line must say why."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if bare := [line for line in lines if len(line.split(maxsplit=1)) < 2]:
        raise pytest.UsageError(f"{LIST.name}: no reason given for {bare[0]}")
    return {line.split(maxsplit=1)[0] for line in lines}


def pytest_configure(config: pytest.Config) -> None:
    # Programs that tests start inherit what is ignored, but no handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # An example that takes long on a busy machine is not a failure.
    settings.register_profile("forerun", deadline=None)
    settings.load_profile("forerun")
    config.pluginmanager.register(SkipRule(allowed_skips(LIST.read_text())), "skip-rule")
