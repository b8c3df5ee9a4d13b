"""`builder serve` in a process of its own: what it says, whom it serves, and how it ends."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tritonclient.utils import InferenceServerException

from tests.triton.clients import WAIT_S, call, generate_stream
from tests.triton.serve_process import (
    ANY_PORTS,
    ServeProcess,
    serve_command,
    serve_process,
    wait_gone,
)
from tests.triton.serving import FORERUN, VLLM, deployed
from triton_backend.launcher import family
from triton_backend.launcher.installation import find_installation

READY_S = 10.0
"""Aim from the command to the first token; the test allows ten times as much."""
SHUTDOWN_S = 5.0
"""Aim for a shutdown with streams running; the tests allow ten times as much."""
OUTLIVES_S = 10.0
"""Aim for how long anything outlives a killed command; the tests allow ten times as much."""
POLL_S = 0.05
KEY = "first"
LONG = {"text": "Hello", "max_tokens": 4000, "ignore_eos": True}
SHORT = {"text": "Hello", "max_tokens": 2, "ignore_eos": True}
WRONG_NUMPY = """
import importlib.metadata, sys
version = importlib.metadata.version
importlib.metadata.version = lambda name: "2.4.0" if name == "numpy" else version(name)
from builder.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def repository(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deployed(tiny_artifact, tmp_path_factory.mktemp("served") / "repository")


@pytest.fixture(scope="module")
def serve(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """Run the command for tests that only ask."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n\nsecond\n")
    with serve_process(repository, f"--api-key-file={keys}") as process:
        yield process


def chat(serve: ServeProcess, *, key: str | None = KEY) -> tuple[int, dict[str, object]]:
    """Ask the OpenAI API for four tokens; give status and body."""
    messages = [{"role": "user", "content": "Hello"}]
    content = {"model": FORERUN, "messages": messages, "max_tokens": 4, "temperature": 0}
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    status, body = call(
        serve.address("openai"), "POST", "/v1/chat/completions", content, headers=headers
    )
    return status, json.loads(body)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)


def test_the_openai_api_answers_when_its_url_is_said(serve: ServeProcess) -> None:
    status, answer = chat(serve)
    assert status == 200, answer
    assert answer["model"] == FORERUN


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("third", 401), ("second", 200)])
def test_keys_close_the_openai_api(serve: ServeProcess, key: str | None, status: int) -> None:
    assert chat(serve, key=key)[0] == status


def test_triton_answers_on_all_its_urls(serve: ServeProcess) -> None:
    with serve.forerun() as stream:
        stream.ask(**SHORT)
        assert sum(len(result.as_numpy("token_ids")) for result in stream.answer()) == 2
    content = {"text_input": "Hello", "sampling_parameters": '{"max_tokens": 2}'}
    assert list(generate_stream(serve.address("http"), VLLM, **content))
    assert b"nv_inference_count" in call(serve.address("metrics"), "GET", "/metrics")[1]


def test_the_log_is_where_it_says(serve: ServeProcess) -> None:
    assert serve.process.stdout is not None
    name, path = serve.process.stdout.readline().split()
    assert name == "log"
    assert "Started GRPCInferenceService" in Path(path).read_text()


def test_everything_listens_on_loopback_only(serve: ServeProcess) -> None:
    processes = [psutil.Process(serve.process.pid), *serve.family]
    listening = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.status == "LISTEN"
    }
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}, (
        "the second is gRPC's way to write the first"
    )
    assert listening


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(repository: Path, number: signal.Signals) -> None:
    with serve_process(repository) as serve:
        members = serve.family
        assert len(members) == 5, "the server, its guard, two fronts, one engine host"
        serve.process.send_signal(number)
        assert serve.process.wait(WAIT_S) == 0
        wait_gone(members, 0)
        assert serve.errors.read_text() == ""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands of a test leave the logs of failures."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_log_of_a_failure_is_kept_and_its_place_told(repository: Path, temporary: Path) -> None:
    with serve_process(repository) as serve:
        (host,) = family.hosts_among(family.members(serve.mark))
        host.kill()
        log = serve.process.stdout.readline().split()[1] if serve.process.stdout else ""
        while "the engine host is gone" not in Path(log).read_text():
            assert serve.process.poll() is None
            time.sleep(0.05)
        serve.process.terminate()
        assert serve.process.wait(WAIT_S) == 0
        said = serve.errors.read_text()
    assert said.startswith("something failed while serving; the log is kept in ")
    kept = Path(said.split()[-1])
    assert "ERROR front tiny: the engine host is gone" in kept.read_text()
    assert kept.parent == temporary


def test_a_signal_before_it_is_ready_is_a_failure(repository: Path) -> None:
    process = subprocess.Popen(
        serve_command(repository), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    own = psutil.Process(process.pid)
    while not (members := own.children(recursive=True)):
        assert process.poll() is None
        time.sleep(POLL_S)
    process.terminate()
    said, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, "whoever waited for it to be ready must not think that it was"
    assert (said, errors) == ("", "error: interrupted\n")
    wait_gone(members, 10 * OUTLIVES_S)


def test_it_starts_and_stops_in_time(repository: Path) -> None:
    started = time.monotonic()
    with serve_process(repository) as serve, serve.forerun() as stream:
        stream.ask(**LONG)
        stream.next()
        ready_s = time.monotonic() - started
        content = {"model": FORERUN, "prompt": "Hello", "max_tokens": 4000, "stream": True}
        with serve.open("/v1/completions", content) as response:
            response.readline()
            members = serve.family
            started = time.monotonic()
            serve.process.terminate()
            assert serve.process.wait(WAIT_S) == 0
            stop_s = time.monotonic() - started
        print(f"first token after {ready_s:.2f} s, stopped after {stop_s:.2f} s")  # noqa: T201
        assert ready_s < 10 * READY_S
        assert stop_s < 10 * SHUTDOWN_S
        wait_gone(members, 0)
        with pytest.raises(InferenceServerException):
            stream.answer()


def test_an_answer_that_fits_into_the_drain_is_finished(repository: Path) -> None:
    with serve_process(repository, f"--drain-timeout={WAIT_S}") as serve:
        with serve.forerun() as stream:
            stream.ask(text="Hello", max_tokens=1000, ignore_eos=True)
            first = stream.next()
            serve.process.terminate()
            results = [first, *stream.answer()]
        tokens = [token for each in results for token in each.as_numpy("token_ids")]
        assert len(tokens) == 1000
        assert serve.process.wait(WAIT_S) == 0


def test_a_server_that_dies_ends_the_command_with_its_log(repository: Path) -> None:
    with serve_process(repository) as serve:
        members = serve.family
        serve.triton.send_signal(signal.SIGSEGV)
        assert serve.process.wait(WAIT_S) == 1
        *log, last = serve.errors.read_text().splitlines()
        assert last == "error: Triton ended with exit code -11; the end of its log is above"
        assert any("Started HTTPService" in line for line in log)
        wait_gone(members, 10 * OUTLIVES_S)


def test_nothing_outlives_a_killed_command(repository: Path) -> None:
    with serve_process(repository) as serve, serve.forerun() as stream:
        stream.ask(**LONG)
        stream.next()
        members, mark = serve.family, serve.mark
        serve.process.kill()
        started = time.monotonic()
        wait_gone(members, 10 * OUTLIVES_S)
        print(f"gone after {time.monotonic() - started:.2f} s, aim {OUTLIVES_S} s")  # noqa: T201
        assert family.regions(mark) == []


def test_an_artifact_that_was_changed_since_is_the_host_s_to_refuse(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    """Its manifest is read before the start; its files are checked by the engine host, which tells the front."""
    artifact = shutil.copytree(tiny_artifact, tmp_path / "artifact", copy_function=shutil.copyfile)
    repository = deployed(artifact, tmp_path / "repository")
    (artifact / "tokenizer" / "tokenizer.json").write_text("{}")
    result = run(*serve_command(repository))
    assert result.returncode == 1
    assert "tokenizer/tokenizer.json" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: Triton ended with exit code 1")


def test_an_artifact_that_is_gone_is_refused_before_the_start(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    artifact = shutil.copytree(tiny_artifact, tmp_path / "artifact", copy_function=shutil.copyfile)
    repository = deployed(artifact, tmp_path / "repository")
    shutil.rmtree(artifact)
    result = run(*serve_command(repository))
    assert result.returncode == 2
    assert result.stderr.count(f"artifact: there is no artifact at {artifact}") == 2
    assert len(result.stderr.splitlines()) == 2


def test_a_port_in_use_is_refused_before_the_start(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        options = [*ANY_PORTS, f"--grpc-port={port}"]
        result = run(*serve_command(repository, *options))
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: the grpc service can't listen on 127.0.0.1:{port}: ")


def test_a_server_whose_stub_lacks_a_library_is_refused_before_the_start(
    repository: Path, tmp_path: Path
) -> None:
    """A copy of the wheel's folder, away from the libraries that stand beside it."""
    root = find_installation().program.parent.parent
    shutil.copytree(root, tmp_path / "tritonserver", ignore=shutil.ignore_patterns("caches"))
    program = tmp_path / "tritonserver" / "bin" / "tritonserver"
    result = run(*serve_command(repository, f"--tritonserver={program}"))
    assert result.returncode == 2
    assert "which are not installed; the server would wait for" in result.stderr


def test_numpy_2_is_refused_before_the_start(repository: Path) -> None:
    result = run(sys.executable, "-c", WRONG_NUMPY, "serve", str(repository), *ANY_PORTS)
    assert result.returncode == 2
    assert result.stderr.startswith(
        "error: numpy 2.4.0 is installed, and this Triton server needs numpy below 2"
    )
