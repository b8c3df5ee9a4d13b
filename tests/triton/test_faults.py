"""What happens when parts of a running service die or leave."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from tests.triton.clients import WAIT_S, Stream
from tests.triton.serve_process import wait_gone
from tests.triton.serving import FORERUN, Served, deployed, serving
from triton_backend.front import LATE, LOST_PINGS, STOPPED
from triton_backend.launcher import family

LONG = {"text": "Hello", "max_tokens": 4000, "ignore_eos": True}
"""An answer that takes several seconds."""
SHORT = {"text": "Hello", "max_tokens": 2, "ignore_eos": True}
NOTICE_S = 1.0
"""Aim for how soon clients hear of a dead engine host; the tests allow ten times as much."""
SHUTDOWN_S = 5.0
"""Aim for a shutdown with streams running; the tests allow ten times as much."""
OUTLIVES_S = 10.0
"""Aim for how long anything outlives a killed server; the tests allow ten times as much."""
POLL_S = 0.05
CLIENT = """
import sys
from tests.triton.clients import Stream
stream = Stream(sys.argv[1], model=sys.argv[2], face="forerun")
stream.ask(text="Hello", max_tokens=4000, ignore_eos=True)
stream.next()
print("streams", flush=True)
while True:
    stream.next()
"""


@pytest.fixture(scope="module")
def breakable(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the tiny model for tests that break parts which are replaced."""
    repository = deployed(tiny_artifact, tmp_path_factory.mktemp("breakable") / "repository")
    with serving(repository) as served:
        yield served


@pytest.fixture
def settled(breakable: Served) -> Served:
    """Wait until what an earlier test broke was replaced."""
    with breakable.forerun() as stream:
        wait_answering(stream, **SHORT)
    return breakable


def start_streams(stack: ExitStack, served: Served, count: int) -> list[Stream]:
    """Start long answers, each in a stream of its own, and wait for the first token of each."""
    streams = [stack.enter_context(served.forerun()) for _ in range(count)]
    for stream in streams:
        stream.ask(**LONG)
    for stream in streams:
        stream.next()
    return streams


def failure_of(stream: Stream) -> str:
    """Read a stream until it fails, and give the message."""
    try:
        while True:
            stream.next()
    except InferenceServerException as failure:
        return str(failure.message())


def is_answering(stream: Stream, **fields: object) -> bool:
    """Ask, and tell whether there was an answer."""
    stream.ask(**fields)
    try:
        stream.answer()
    except InferenceServerException:
        return False
    return True


def wait_answering(stream: Stream, **fields: object) -> float:
    """Ask until there is an answer; give the seconds that it took."""
    started = time.monotonic()
    while not is_answering(stream, **fields):
        assert time.monotonic() - started < WAIT_S
        time.sleep(POLL_S)
    return time.monotonic() - started


def test_a_killed_engine_host_is_told_at_once_and_replaced(settled: Served) -> None:
    with ExitStack() as stack:
        streams = start_streams(stack, settled, 4)
        (host,) = settled.hosts
        killed = time.monotonic()
        host.kill()
        failures = [failure_of(stream) for stream in streams]
        took = time.monotonic() - killed
        back = wait_answering(streams[0], **SHORT)
    print(f"clients knew after {took:.3f} s (aim {NOTICE_S} s), answers again after {back:.2f} s")  # noqa: T201
    assert all(STOPPED.message in failure for failure in failures)
    assert took < 10 * NOTICE_S
    (fresh,) = settled.hosts
    assert fresh.pid != host.pid


def test_both_faces_share_the_host_that_replaced_a_killed_one(settled: Served) -> None:
    settled.hosts[0].kill()
    with settled.forerun() as forerun, settled.vllm() as vllm:
        wait_answering(forerun, **SHORT)
        wait_answering(vllm, text_input="Hello", sampling_parameters='{"max_tokens": 2}')
    assert len(settled.hosts) == 1


def test_a_host_that_is_killed_again_and_again_is_replaced_each_time(settled: Served) -> None:
    killed = set()
    with settled.forerun() as stream:
        for _ in range(3):
            (host,) = settled.hosts
            killed.add(host.pid)
            host.kill()
            wait_gone([host], WAIT_S)
            wait_answering(stream, **SHORT)
    assert len(killed) == 3
    assert settled.server.exit_code is None


def test_a_hung_engine_host_is_killed_and_replaced(settled: Served) -> None:
    """Meanwhile requests that fill its socket keep neither Triton nor the watch over timeouts waiting."""
    with ExitStack() as stack:
        streams = start_streams(stack, settled, 2)
        (host,) = settled.hosts
        hung = time.monotonic()
        host.suspend()
        late = stack.enter_context(settled.forerun())
        for _ in range(6):
            late.ask(timeout_us=2_000_000, text="x" * 100_000)
        assert [LATE.message in failure_of(late) for _ in range(6)] == [True] * 6
        told = time.monotonic() - hung
        failures = [failure_of(stream) for stream in streams]
        took = time.monotonic() - hung
        back = wait_answering(streams[0], **SHORT)
    print(f"late after {told:.1f} s, clients knew after {took:.1f} s, answers after {back:.2f} s")  # noqa: T201
    assert all(STOPPED.message in failure for failure in failures)
    assert told < 10 * 2
    assert LOST_PINGS / 2 < took < 10 * LOST_PINGS
    (fresh,) = settled.hosts
    assert fresh.pid != host.pid


def test_a_cancelled_stream_frees_the_engine(triton: Served) -> None:
    before = triton.wait_idle()
    with ExitStack() as stack:
        start_streams(stack, triton, 3)
        assert triton.snapshot().num_running == 3
    assert triton.wait_idle().num_used_blocks == before.num_used_blocks


def test_a_killed_client_frees_the_engine(triton: Served) -> None:
    before = triton.wait_idle()
    command = [sys.executable, "-c", CLIENT, triton.addresses.grpc, FORERUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "streams\n"
        assert triton.snapshot().num_running == 1
        client.kill()
    assert triton.wait_idle().num_used_blocks == before.num_used_blocks


def test_a_stop_with_running_streams_ends_them_and_leaves_nothing(own_triton: Served) -> None:
    with ExitStack() as stack:
        streams = start_streams(stack, own_triton, 4)
        started = time.monotonic()
        own_triton.server.drain()
        own_triton.server.end()
        took = time.monotonic() - started
        failures = [failure_of(stream) for stream in streams]
    print(f"stopped after {took:.2f} s, aim {SHUTDOWN_S} s: {failures}")  # noqa: T201
    assert took < 10 * SHUTDOWN_S
    assert own_triton.leftovers == []


def test_what_a_killed_tritonserver_leaves_is_ended(own_triton: Served) -> None:
    """Its stubs may wait for an answer of it for ever, and the engine host for them."""
    with ExitStack() as stack:
        start_streams(stack, own_triton, 2)
        assert len(family.members(own_triton.server.mark)) == 4, "server, two fronts, engine host"
        family.Process(own_triton.server.pid).kill()
        own_triton.server.end()
        assert own_triton.leftovers == []


def test_a_killed_front_frees_the_engine_and_is_replaced(settled: Served) -> None:
    """Its clients hear nothing, as Triton does not tell them; its requests end, and the host stays."""
    (host,) = settled.hosts
    watch = settled.watch()
    with ExitStack() as stack:
        start_streams(stack, settled, 2)
        settled.stubs[FORERUN].kill()
        assert settled.wait_idle().num_used_blocks == 0
        while not (said := watch.look()):
            time.sleep(POLL_S)
        assert said == [f"the front of {FORERUN} died; it was loaded again"]
        with settled.forerun() as stream:
            assert is_answering(stream, **SHORT)
    assert [each.pid for each in settled.hosts] == [host.pid]
