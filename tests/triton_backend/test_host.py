"""The engine host as a process, with a tiny model: it serves, it fails in words, and it never outlives its fronts."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from builder.artifact.store import open_artifact
from tests.triton_backend.calls import PATIENCE_S
from tests.triton_backend.gated import write_missed_report
from triton_backend import hosting
from triton_backend.link import Link
from triton_backend.loading import load_model
from triton_backend.messages import (
    VERSION,
    Cancel,
    Claim,
    Deltas,
    Failed,
    FromHost,
    Hello,
    Join,
    Leave,
    News,
    PlainText,
    Submit,
    Terms,
)
from triton_backend.rendezvous import connect
from triton_backend.request import FinishReason, Request, SamplingParams
from triton_backend.tenancy import sign, write_secret

LONG = 10_000


class HostProcess:
    """A host that the test started itself."""

    def __init__(self, folder: Path, artifact: Path, *options: str) -> None:
        self.socket = folder / "here.sock"
        command = [sys.executable, "-P", "-m", "triton_backend.host", "--socket", str(self.socket)]
        self.process = subprocess.Popen(
            [*command, "--artifact", str(artifact), *options], stderr=subprocess.PIPE, text=True
        )
        self.links: list[Link[FromHost]] = []

    def connect(self) -> Link[FromHost]:
        deadline = time.monotonic() + PATIENCE_S
        while (connection := connect(self.socket)) is None:
            assert self.process.poll() is None, self.process.stderr
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.links.append(Link(connection, FromHost))
        self.links[-1].send(Join(VERSION, "forerun"))
        return self.links[-1]

    def join(self) -> Link[FromHost]:
        link = self.connect()
        assert isinstance(link.receive(), Hello)
        return link

    def wait(self) -> tuple[int, str]:
        """Wait for the end; give the exit code and the log."""
        _, log = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, log


@pytest.fixture
def start(tmp_path: Path, tiny_artifact: Path) -> Iterator[Callable[..., HostProcess]]:
    started: list[HostProcess] = []

    def begin(*options: str, artifact: Path = tiny_artifact) -> HostProcess:
        started.append(HostProcess(tmp_path, artifact, *options))
        return started[-1]

    yield begin
    for host in started:
        for link in host.links:
            link.close()
        if host.process.poll() is None:
            host.process.kill()
        host.process.communicate()


def submit(number: int, *, max_tokens: int = 5) -> Submit:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return Submit(number, PlainText("hello"), params)


def answer(link: Link[FromHost]) -> list[News]:
    heard: list[News] = []
    while not heard or heard[-1].finish_reason is None:
        message = link.receive()
        assert isinstance(message, Deltas)
        heard += message.news
    return heard


def test_it_answers_as_the_engine_in_this_process_does(start, tiny_artifact: Path) -> None:
    link = start().join()
    link.send(submit(1))
    heard = answer(link)
    model = load_model(open_artifact(tiny_artifact))
    model.engine.submit(Request("a", model.encode_text("hello"), submit(1).params))
    expected = [model.engine.step()[0] for _ in range(5)]
    model.close()
    assert [news.token_ids for news in heard] == [delta.token_ids for delta in expected]
    assert [news.text for news in heard] == [delta.text for delta in expected]
    assert heard[-1].finish_reason is FinishReason.LENGTH


def test_a_running_request_is_cancelled(start) -> None:
    link = start().join()
    link.send(submit(1, max_tokens=LONG))
    assert isinstance(link.receive(), Deltas)
    link.send(Cancel(1))
    assert answer(link)[-1].finish_reason is FinishReason.CANCELLED
    link.send(submit(2))
    assert len(answer(link)) == 5


def test_it_ends_in_good_order_though_requests_run(start) -> None:
    host = start()
    link = host.join()
    link.send(submit(1, max_tokens=LONG))
    assert isinstance(link.receive(), Deltas)
    host.process.send_signal(signal.SIGTERM)
    while link.receive() is not None:
        pass
    code, log = host.wait()
    assert code == 0
    assert "stopped" in log
    assert "Traceback" not in log
    assert not host.socket.exists()


def test_the_interrupt_of_a_terminal_is_left_to_the_server(start) -> None:
    host = start()
    link = host.join()
    host.process.send_signal(signal.SIGINT)
    link.send(submit(1))
    assert len(answer(link)) == 5


def test_a_stop_while_it_loads_is_a_stop(start) -> None:
    host = start()
    host.connect()
    host.process.send_signal(signal.SIGTERM)
    assert host.wait()[0] == 0


def test_it_ends_by_itself_when_its_last_front_was_lost(start) -> None:
    host = start("--grace", "0.2")
    first, second = host.join(), host.join()
    first.close()
    second.send(submit(1))
    assert len(answer(second)) == 5
    second.close()
    code, log = host.wait()
    assert code == 0
    assert "no front is left" in log


def test_it_ends_at_once_when_its_last_front_took_its_leave(start) -> None:
    host = start("--grace", str(PATIENCE_S * 10))
    host.join().send(Leave())
    assert host.wait()[0] == 0


def test_a_second_host_of_a_deployment_ends_at_once(start) -> None:
    first = start()
    first.join()
    code, log = start().wait()
    assert (code, log) == (0, "")
    assert first.process.poll() is None


def test_an_altered_artifact_is_told_and_never_loaded(
    start, tiny_artifact: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(tiny_artifact, tmp_path / "copy", copy_function=shutil.copyfile)
    (copy / "tokenizer" / "tokenizer.json").write_text("{}")
    host = start(artifact=copy)
    failed = host.connect().receive()
    assert isinstance(failed, Failed)
    assert failed.message.startswith("tokenizer/tokenizer.json in")
    assert failed.exit_code == 2
    code, log = host.wait()
    assert code == 2
    assert failed.message in log
    assert "Traceback" not in log


@pytest.fixture
def missed(tiny_artifact: Path, tmp_path: Path) -> Path:
    """An artifact whose report says that it missed its gate."""
    copy = shutil.copytree(tiny_artifact, tmp_path / "copy", copy_function=shutil.copyfile)
    write_missed_report(copy)
    return copy


def test_an_artifact_that_missed_its_gate_is_told_and_never_loaded(start, missed: Path) -> None:
    host = start(artifact=missed)
    failed = host.connect().receive()
    assert isinstance(failed, Failed)
    assert failed.message.startswith(f"{missed} missed its quality gate: kl_mean 9, at most 1;")
    assert failed.exit_code == 2
    code, log = host.wait()
    assert code == 2
    assert "Traceback" not in log


def test_it_is_served_with_a_warning_where_that_is_allowed(start, missed: Path) -> None:
    host = start("--allow-missed-gate", artifact=missed)
    link = host.join()
    link.send(submit(1))
    assert len(answer(link)) == 5
    link.send(Leave())
    assert "WARNING" in (log := host.wait()[1])
    assert "missed its quality gate: kl_mean 9, at most 1; it runs all the same" in log


def test_a_report_of_another_artifact_is_ignored_with_a_warning(start, missed: Path) -> None:
    write_missed_report(missed, digest="00")
    host = start(artifact=missed)
    link = host.join()
    link.send(Leave())
    assert "is about another artifact and does not count" in host.wait()[1]


def test_a_broken_report_is_refused(start, missed: Path) -> None:
    (missed / "reports" / "gate.json").write_text("{")
    failed = start("--allow-missed-gate", artifact=missed).connect().receive()
    assert isinstance(failed, Failed)
    assert failed.message.startswith("reports/gate.json can't be read: ")


def test_a_failure_that_nobody_foresaw_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = hosting._told(MemoryError("no room\n for it"), tmp_path)
    assert str(told) == f"loading {tmp_path} failed with MemoryError: no room for it"
    assert told.exit_code == 1
    assert "MemoryError" in caplog.text


def test_with_a_secret_a_tenant_finds_its_own_prompt_again(start, tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "secret")
    link = start("--secret-file", str(tmp_path / "secret")).join()
    cached = []
    for number, tenant in enumerate(["alice", "bob", "alice"]):
        expires_s = int(time.time()) + 60
        tag = sign(secret, tenant=tenant, request_id="r", expires_s=expires_s)
        prompt, params = PlainText("hello " * 20), SamplingParams(max_tokens=1)
        link.send(Submit(number, prompt, params, Terms(Claim(tenant, expires_s, tag)), "r"))
        cached.append(answer(link)[-1].num_cached_tokens)
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine=policy=fastest",), "unknown policy 'fastest'"),
        (("--engine", "polcy=fair"), "unknown setting of the engine 'polcy'"),
        (
            ("--secret-file", "/nowhere/secret"),
            "the secret of the deployment at /nowhere/secret can't",
        ),
    ],
)
def test_settings_that_can_not_be_used_are_told_to_the_front(
    start, options: tuple[str, ...], message: str
) -> None:
    host = start(*options)
    failed = host.connect().receive()
    assert isinstance(failed, Failed)
    assert message in failed.message
    host.links[-1].close()
    assert host.wait()[0] == 2


def test_settings_of_the_engine_count(start) -> None:
    link = start("--engine=policy=priority", "--engine=max_waiting=5").join()
    link.send(msgspec.structs.replace(submit(1), terms=Terms(priority=3)))
    assert len(answer(link)) == 5
