"""One tritonserver process with all that it starts: up when it is ready, and nothing left when it is stopped.

The server has a private folder for its models, its backend links and its log. Whoever started it asks whether it
lives; a guard ends it when the process that started it was killed.
"""

import contextlib
import math
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.errors import ServerError
from triton_backend.launcher import family
from triton_backend.launcher.addresses import Addresses
from triton_backend.launcher.guard import guarded
from triton_backend.launcher.installation import Installation, link_backends
from triton_backend.launcher.mirror import Mirror
from triton_backend.launcher.names import check_private_folder
from triton_backend.launcher.preflight import check_installation
from triton_backend.launcher.readiness import Readiness
from triton_backend.launcher.unfinished import UnfinishedAnswers
from triton_backend.tenancy import write_secret

SECRET = "secret"  # noqa: S105 (the name of a file)
"""File in the private folder."""
POLL_S = 0.05
TAIL_LINES = 30
SETTLE_S = 3.0
"""What Triton gets to end by itself after the last answer. It needs 2, and never does while a client keeps a stream open."""
END_S = 1.0
"""For the last responses to reach their clients when the drain was not enough."""
RESTRICTED = "model-repository,shared-memory,trace,logging"
"""Loading a model takes files, so it runs code; the others write files and map memory on a client's word."""
NOBODY = "Closed\nto clients=\n"
"""The header, and its value, that would open them. Every user of the machine can read it from the command line, and
nobody can send it: no header's name has a line end. (A value may have one, in gRPC.)"""
POLL_REPOSITORY_S = 1


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What to start."""

    installation: Installation
    repository: Path
    fronts: tuple[str, ...]
    """Models of the repository that builder deploy wrote."""
    others: tuple[str, ...]
    """Its other models; nobody can tell what they have not finished."""
    addresses: Addresses
    drain_s: float
    """Time that running answers get to finish when the server is stopped."""


@contextlib.contextmanager
def running_server(plan: LaunchPlan) -> Iterator["TritonServer"]:
    """Start a server, and stop it in the end; at once where the body fails.

    Raises:
        UserError: the installation can't serve from this Python.
    """
    mark = f"forerun-{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix=f"{mark}-") as name, guarded(mark, Path(name)):
        server = TritonServer(plan, mark, Path(name))
        try:
            yield server
            server.drain()
        finally:
            server.end()


class TritonServer:
    """A server that was started; `running_server` also ends it."""

    def __init__(self, plan: LaunchPlan, mark: str, folder: Path) -> None:
        """Start the process; it is not ready yet. The mark is for its processes and its shared memory.

        Raises:
            UserError: the installation can't serve from this Python.
        """
        self.mark = mark
        self.log = folder / "server.log"
        self.readiness = Readiness(plan.addresses.host, plan.addresses.http_port)
        self._plan = plan
        check_private_folder(folder)
        inherited = os.environ  # noqa: TID251 (programs need PATH; no result depends on it)
        environment = family.server_environment(inherited, mark=mark, secret=folder / SECRET)
        self.secret = write_secret(folder / SECRET)
        """Under which this server's engine hosts believe who a caller is."""
        check_installation(plan.installation, environment)
        self.mirror = Mirror(folder)
        for model in plan.fronts:
            self.mirror.add_front(plan.repository / model)
        for model in plan.others:
            self.mirror.add_other(plan.repository / model)
        options = self._options(link_backends(folder, plan.installation))
        current = folder / "current"
        current.mkdir()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (a program that was found and checked)
                [str(plan.installation.program), *options],
                env=environment,
                # A stub looks for modules in the current folder first.
                cwd=current,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C of a terminal goes to its whole group, but the order of stopping is ours.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of tritonserver."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the server ended (minus the signal that killed it); None while it runs."""
        return self._process.poll()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every model is ready.

        Raises:
            ServerError: the server ended or took too long; the end of its log is in the notes.
        """
        deadline = time.monotonic() + timeout_s
        while not self.readiness.is_ready():
            self.check_alive()
            self.close_regions()
            if time.monotonic() > deadline:
                raise self._failure(f"Triton was not ready after {timeout_s:g} s")
            time.sleep(POLL_S)
        self.close_regions()

    def close_regions(self) -> None:
        """Take the prompts in shared memory, which Triton makes readable for everybody, from other users' eyes."""
        for region in family.regions(self.mark):
            with contextlib.suppress(FileNotFoundError):
                region.chmod(0o600)

    def check_alive(self) -> None:
        """Refuse a server that has ended.

        Raises:
            ServerError: says how it ended; the end of its log is in the notes.
        """
        if self.exit_code is not None:
            raise self._failure(f"Triton ended with exit code {self.exit_code}")

    @property
    def log_size(self) -> int:
        """Bytes in the log."""
        return self.log.stat().st_size

    def log_tail(self, start: int = 0) -> str:
        """Give the last lines of the log from the byte `start` on, without the tables that Triton draws into it."""
        lines = self.log.read_bytes()[start:].decode("utf-8", "replace").splitlines()
        return "\n".join([line for line in lines if line.strip(" +|-=")][-TAIL_LINES:])

    def drain(self) -> None:
        """Take no new requests, let those that run finish for a while, then end them."""
        self._process.terminate()
        with UnfinishedAnswers(self._hosts()) as unfinished:
            self._wait_drained(unfinished)
        # A host that is told to end ends its answers; then their clients have heard all there is.
        family.terminate(self._hosts())
        self._ends_within(END_S)

    def _hosts(self) -> list[family.Process]:
        """Find the engine hosts; none where the kernel does not answer, which must not keep the server from ending."""
        with contextlib.suppress(OSError):
            return family.hosts_among(family.members(self.mark))
        return []

    def _wait_drained(self, unfinished: UnfinishedAnswers) -> None:
        """Wait until the server has ended, all answers have for a while, or the drain is over."""
        now = time.monotonic()
        deadline, answering = now + self._plan.drain_s, now
        while now < min(deadline, answering + SETTLE_S) and not self._ends_within(POLL_S):
            now = time.monotonic()
            if self._plan.others or unfinished.count():
                answering = now

    def end(self) -> None:
        """End every process that is left."""
        family.end(self.mark)
        self._process.wait()

    def _ends_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code is not None

    def _failure(self, message: str) -> ServerError:
        failure = ServerError(f"{message}; the end of its log is above")
        failure.add_note(self.log_tail())
        return failure

    def _options(self, backends: Path) -> list[str]:
        """Give the command line: our models only, nothing of a GPU, and closed what changes the server."""
        plan, addresses = self._plan, self._plan.addresses
        return [
            f"--id={self.mark}",
            f"--model-repository={self.mirror.root}",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-region-prefix-name={self.mark}",
            # Polling: so that a model whose stub died can be loaded again, and no client can load any.
            "--model-control-mode=poll",
            f"--repository-poll-secs={POLL_REPOSITORY_S}",
            # Our files are complete; completing them would start every stub twice.
            *(() if plan.others else ("--disable-auto-complete-config",)),
            f"--http-address={addresses.host}",
            f"--http-port={addresses.http_port}",
            f"--grpc-address={addresses.host}",
            f"--grpc-port={addresses.grpc_port}",
            f"--metrics-address={addresses.host}",
            f"--metrics-port={addresses.metrics_port}",
            f"--http-restricted-api={RESTRICTED}:{NOBODY}",
            f"--grpc-restricted-protocol={RESTRICTED}:{NOBODY}",
            f"--exit-timeout-secs={math.ceil(plan.drain_s + END_S)}",
            "--allow-gpu-metrics=false",
            "--pinned-memory-pool-byte-size=0",
        ]
