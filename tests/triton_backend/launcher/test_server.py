"""A real tritonserver with a trivial model: starts, answers, is closed to strangers, stops, leaves nothing behind."""

import contextlib
import http.client
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.errors import ServerError
from tests.triton_backend.launcher.trivial import (
    WAIT_S,
    stream,
    trivial_plan,
)
from triton_backend.launcher import family
from triton_backend.launcher.server import LaunchPlan, TritonServer, running_server
from triton_backend.launcher.watch import StubWatch

OUTLIVES_S = 10.0
"""Aim for a server whose starter was killed; the test allows ten times as much."""
POLL_S = 0.05
STARTER = """
import os, signal, sys
from pathlib import Path
from tests.triton_backend.launcher.trivial import stream, trivial_plan
from triton_backend.launcher.server import running_server
plan = trivial_plan(Path(sys.argv[1]))
with running_server(plan) as server:
    server.wait_ready(60)
    with stream(plan.addresses.grpc, count=10_000, pause_s=0.1) as answer:
        answer.get(timeout=60)
        print(server.mark, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def call(plan: LaunchPlan, method: str, path: str) -> tuple[int, str]:
    """Call Triton's HTTP API as a stranger."""
    connection = http.client.HTTPConnection(plan.addresses.http, timeout=WAIT_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_started_server_answers(shared: tuple[TritonServer, LaunchPlan]) -> None:
    _, plan = shared
    with stream(plan.addresses.grpc, count=2) as answer:
        results = [answer.get(timeout=WAIT_S) for _ in range(3)]
    assert [error for _, error in results] == [None, None, None]
    texts = [result.as_numpy("text") for result, _ in results if result is not None]
    assert [None if text is None else text.tolist() for text in texts] == [
        [b"hello"],
        [b"hello"],
        None,
    ]


def test_it_listens_on_loopback_only(shared: tuple[TritonServer, LaunchPlan]) -> None:
    server, _ = shared
    (process,) = [each for each in family.members(server.mark) if each.pid == server.pid]
    listening = {c.laddr.ip for c in process.net_connections("tcp") if c.status == "LISTEN"}
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}, (
        "the second is gRPC's way to write the first"
    )
    assert listening


def test_metrics_are_served(shared: tuple[TritonServer, LaunchPlan]) -> None:
    connection = http.client.HTTPConnection(shared[1].addresses.metrics, timeout=WAIT_S)
    connection.request("GET", "/metrics")
    assert 'nv_inference_count{model="trivial"' in connection.getresponse().read().decode()
    connection.close()


def test_a_stopped_server_leaves_nothing_behind(trivial: Path) -> None:
    with running_server(trivial_plan(trivial, drain_s=WAIT_S)) as server:
        server.wait_ready(WAIT_S)
        assert len(family.members(server.mark)) == 2
        assert len(family.regions(server.mark)) == 1
        folder = server.log.parent
    assert server.exit_code == 0
    assert family.members(server.mark) == []
    assert family.regions(server.mark) == []
    assert not folder.exists()


def test_running_answers_may_finish_while_new_ones_are_refused(trivial: Path) -> None:
    plan = trivial_plan(trivial, drain_s=WAIT_S)
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        draining = threading.Thread(target=server.drain)
        with stream(plan.addresses.grpc, count=30, pause_s=0.1) as answer:
            results = [answer.get(timeout=WAIT_S)]
            draining.start()
            results += [answer.get(timeout=WAIT_S) for _ in range(10)]
            with stream(plan.addresses.grpc, count=1) as refused:
                assert refused.get(timeout=WAIT_S)[1] is not None
            results += [answer.get(timeout=WAIT_S) for _ in range(20)]
        draining.join(WAIT_S)
        assert [error for _, error in results] == [None] * 31
        assert server.exit_code == 0


def test_a_client_that_keeps_its_stream_open_does_not_hold_the_server(plan: LaunchPlan) -> None:
    """Triton itself would wait for it until its exit timeout."""
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        with stream(plan.addresses.grpc, count=1) as answer:
            answer.get(timeout=WAIT_S)
            server.drain()
            server.end()
            assert family.members(server.mark) == []


def test_answers_that_do_not_finish_are_cut_off(plan: LaunchPlan) -> None:
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        with stream(plan.addresses.grpc, count=10_000, pause_s=0.1) as answer:
            answer.get(timeout=WAIT_S)
            started = time.monotonic()
            server.drain()
            server.end()
            took = time.monotonic() - started
        assert took < 50, "ten times the aim for a shutdown"
    assert family.members(server.mark) == []
    assert family.regions(server.mark) == []


def test_a_body_that_fails_stops_the_server_too(plan: LaunchPlan) -> None:
    with contextlib.suppress(ZeroDivisionError), running_server(plan) as server:
        raise ZeroDivisionError
    assert server.exit_code is not None
    assert family.members(server.mark) == []


def test_a_server_that_is_killed_leaves_nothing_behind(plan: LaunchPlan) -> None:
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        (stub,) = family.stubs_among(family.members(server.mark)).values()
        family.Process(server.pid).kill()
        with pytest.raises(ServerError, match=r"Triton ended with exit code -9"):
            server.wait_ready(WAIT_S)
        assert len(family.regions(server.mark)) == 1
    assert not family.is_alive(stub)
    assert family.regions(server.mark) == []


def test_a_server_ends_when_its_starter_is_killed(trivial: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(trivial)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    mark = result.stdout.strip()
    deadline = time.monotonic() + 10 * OUTLIVES_S
    while family.members(mark) or family.regions(mark):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_model_whose_stub_died_is_loaded_again(trivial: Path) -> None:
    plan = trivial_plan(trivial, fronts=("trivial",))
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        watch = StubWatch(server, plan.fronts)
        assert watch.look() == []
        (old,) = family.stubs_among(family.members(server.mark)).values()
        old.kill()
        while not (said := watch.look()):
            time.sleep(POLL_S)
        assert said == ["the front of trivial died; it was loaded again"]
        assert watch.look() == []
        with stream(plan.addresses.grpc, count=1) as answer:
            assert answer.get(timeout=WAIT_S)[1] is None
        assert {region.stat().st_mode & 0o777 for region in family.regions(server.mark)} == {0o600}


def test_a_front_is_loaded_once(trivial: Path) -> None:
    """Python's own files beside a model would look like a change to Triton, and it would load it again."""
    plan = trivial_plan(trivial, fronts=("trivial",))
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        seen = server.log_size
        (server.mirror.root / "later").mkdir()
        while "later" not in server.log_tail(seen):
            server.check_alive()
        assert server.log.read_text().count('"loading: trivial:1"') == 1


def test_only_the_owner_reads_its_shared_memory(shared: tuple[TritonServer, LaunchPlan]) -> None:
    regions = family.regions(shared[0].mark)
    assert regions
    assert {region.stat().st_mode & 0o777 for region in regions} == {0o600}


def test_a_region_that_comes_later_is_closed_too(shared: tuple[TritonServer, LaunchPlan]) -> None:
    server, _ = shared
    region = family.SHARED_MEMORY / f"{server.mark}-later"
    region.touch(0o644)
    assert StubWatch(server, ()).look() == []
    assert region.stat().st_mode & 0o777 == 0o600
    region.unlink()
