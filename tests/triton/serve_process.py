"""`builder serve` as users run it: a process whose standard output says where it listens."""

import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.triton.clients import WAIT_S, Stream
from tests.triton.serving import FORERUN
from triton_backend.launcher import family

ANY_PORTS = [f"--{service}-port=0" for service in ("openai", "http", "grpc", "metrics")]


@dataclass(frozen=True, slots=True)
class ServeProcess:
    """A command that is ready."""

    process: subprocess.Popen[str]
    urls: dict[str, str]
    """Of `openai`, `http`, `grpc` and `metrics`."""
    errors: Path
    """The file that its standard error goes to."""

    @property
    def family(self) -> list[psutil.Process]:
        """All processes below it."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    @property
    def triton(self) -> psutil.Process:
        """The tritonserver below it."""
        (server,) = [each for each in self.family if each.name() == "tritonserver"]
        return server

    @property
    def mark(self) -> str:
        """What its processes and its regions of shared memory are known by."""
        (option,) = [each for each in self.triton.cmdline() if each.startswith("--id=")]
        return option.removeprefix("--id=")

    def address(self, service: str) -> str:
        """Give `host:port` of a service."""
        return self.urls[service].removeprefix("http://").partition("/")[0]

    @contextmanager
    def open(self, path: str, content: object) -> Iterator[http.client.HTTPResponse]:
        """Post JSON to the OpenAI API, and give the response as it comes."""
        connection = http.client.HTTPConnection(self.address("openai"), timeout=WAIT_S)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, body=json.dumps(content), headers=headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def forerun(self) -> Stream:
        """Open a gRPC stream to the model with the `forerun` face."""
        return Stream(self.urls["grpc"], model=FORERUN, face="forerun")


def serve_command(repository: Path, *options: str) -> list[str]:
    """Give the command line that serves a repository on free ports."""
    # -P: what an installed builder does; -m alone would look into the current folder for modules first.
    builder = [sys.executable, "-P", "-m", "builder.cli.main", "serve", str(repository)]
    return [*builder, *ANY_PORTS, *options]


@contextmanager
def serve_process(
    repository: Path, *options: str, cwd: Path | None = None
) -> Iterator[ServeProcess]:
    """Run `builder serve` until it is ready; in the end it is killed if it still runs, and nothing may be left."""
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "stderr")
        with errors.open("w") as stream:
            process = subprocess.Popen(
                serve_command(repository, *options),
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                cwd=cwd,
            )
        try:
            yield ServeProcess(process, read_urls(process), errors)
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)


def read_urls(process: subprocess.Popen[str]) -> dict[str, str]:
    """Read what a command says when it is ready: a line with the time it took, then one per service."""
    assert process.stdout is not None
    title = process.stdout.readline()
    assert title.startswith("Ready in "), title
    return dict(process.stdout.readline().split() for _ in range(4))


def wait_gone(processes: list[psutil.Process], timeout_s: float) -> None:
    """Wait until processes have ended.

    Raises:
        AssertionError: one of them still runs after `timeout_s`.
    """
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    assert [each for each in alive if family.is_alive(each)] == []
