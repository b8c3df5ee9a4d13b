"""Finds the engine host of a deployment, or starts it, and joins it.

Whoever finds no host starts one. Of several that were started at once, one gets the lock and the others end at
once, so all that counts is that the socket answers in the end. What only people can put right is not tried again
and again: loading a model to fail costs minutes of all cores.
"""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from builder.artifact import manifest as manifests
from builder.artifact.store import hash_file, read_manifest
from builder.errors import ForerunError, WorkError
from triton_backend.engine_options import written_options
from triton_backend.front_settings import FrontSettings
from triton_backend.link import Link, LinkError
from triton_backend.messages import VERSION, Failed, FromHost, Hello, Join
from triton_backend.rendezvous import connect, peer_pid, runtime_folder, socket_path
from triton_backend.subprograms import command_of

POLL_S = 0.01
START_S = 60.0
"""From starting the process to a socket that answers, which is before the engine is loaded."""
REAP_S = 1.0
FINAL_S = 60.0
"""A host that said that no host can serve is not started again before, unless the manifest changes. The manifest is
the same where somebody brings another file of the artifact back, so in the end it is tried all the same."""
FINAL_CODE = 2
REPLACED = "the artifact was replaced after this model was loaded"
ANEW = "unload all models of the deployment, then load them again"


class AttachError(WorkError):
    """No engine host serves the deployment; the message says why."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A link to an engine host that has loaded its engine."""

    link: Link[FromHost]
    hello: Hello
    pid: int

    def kill(self) -> None:
        """Kill a host that hangs, which ends the link and gives its place free."""
        # As long as the link is open, the number is that of the host and of nobody else. It is 0 if the kernel
        # can't tell it, and would then mean ourselves.
        if self.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.link.close()


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Where a deployment's host is found, what it serves, and how it is started."""

    socket: Path
    digest: str
    """sha256 of the artifact's manifest."""
    manifest: Path
    command: tuple[str, ...]


def find_place(
    settings: FrontSettings, *, server: str, folder: Path | None = None, secret: Path | None = None
) -> HostPlace:
    """Work out where the host of a deployment is; `secret` is the file of the deployment's secret.

    `server` names the Triton server: two of them share no host. A host serves the artifact as it was when it
    started; fronts that see another one in the same folder have another host.

    Raises:
        ArtifactError: there is no readable artifact.
        UserError: the private folder for sockets can't be used.
    """
    artifact = settings.artifact
    read_manifest(artifact)
    manifest = artifact / manifests.FILE_NAME
    digest = hash_file(manifest).sha256
    folder = runtime_folder() if folder is None else folder
    socket = socket_path(folder, server, settings.deployment, str(artifact), digest)
    command = [
        *command_of("triton_backend.host"),
        *("--socket", str(socket), "--artifact", str(artifact)),
        *(() if settings.threads is None else ("--threads", str(settings.threads))),
        *(f"--engine={name}={text}" for name, text in written_options(settings.engine).items()),
        *(() if secret is None else ("--secret-file", str(secret))),
        *(("--allow-missed-gate",) if settings.allow_missed_gate else ()),
    ]
    return HostPlace(socket, digest, manifest, tuple(command))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a host said of an artifact that none could serve."""

    message: str
    manifest: tuple[int, ...]
    """The stamp of the file that it spoke of."""
    until_s: float

    def stands(self, manifest: Path) -> bool:
        """Tell whether there is no reason to try again."""
        return time.monotonic() < self.until_s and self.manifest == _stamp(manifest)


class HostDoor:
    """The way to a host. One thread attaches; any may close."""

    def __init__(self, place: HostPlace, face: str) -> None:
        """Begin outside; `face` is told to the host, for its log."""
        self._place = place
        self._face = face
        self._child: subprocess.Popen[bytes] | None = None
        """A host that we started, and that has not served us yet."""
        self._host: subprocess.Popen[bytes] | None = None
        """The one that did."""
        self._link: Link[FromHost] | None = None
        self._verdict: Verdict | None = None
        self._is_closed = False

    def attach(self) -> Attached:
        """Join the host, started if need be, and wait until its engine is loaded.

        Raises:
            AttachError: it can't be started or can't load its engine, or the door was closed.
        """
        if self._verdict is not None and self._verdict.stands(self._place.manifest):
            raise AttachError(self._verdict.message)
        self._verdict = None
        deadline = time.monotonic() + START_S
        while not self._is_closed:
            attached = self._knock()
            if attached is not None:
                return attached
            self._start_if_none_runs()
            if time.monotonic() > deadline:
                raise AttachError(f"no engine host answered within {START_S:g} s")
            time.sleep(POLL_S)
        raise AttachError("the front is closing")

    def close(self) -> None:
        """Give up attaching; end the link, and wait a moment for the end of a host that we started."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()
        for child in (self._child, self._host):
            if child is not None:
                _reap(child)

    def _knock(self) -> Attached | None:
        """Join whoever is there; None if nobody is, or ended before it said hello."""
        connection = connect(self._place.socket)
        if connection is None:
            return None
        link: Link[FromHost] = Link(connection, FromHost)
        with contextlib.ExitStack() as undo:
            undo.callback(link.close)
            self._link = link
            hello = self._hello(link)
            if hello is None:
                return None
            undo.pop_all()
        pid = peer_pid(connection)
        self._settle(pid)
        return Attached(link, hello, pid)

    def _settle(self, host_pid: int) -> None:
        """Take note of which of our children is the host now; the others end, or have ended."""
        ours = [child for child in (self._child, self._host) if child is not None]
        self._child = None
        self._host = next((child for child in ours if child.pid == host_pid), None)
        for child in ours:
            if child is not self._host:
                _reap(child)

    def _hello(self, link: Link[FromHost]) -> Hello | None:
        """Say who we are and wait for the host's first words; None if it ended without any."""
        with contextlib.suppress(LinkError):
            link.send(Join(VERSION, self._face))
        try:
            first = link.receive()
        except LinkError as error:
            raise AttachError(f"the engine host is of another version: {error}; {ANEW}") from error
        match first:
            case None:
                return None
            case Failed(message, exit_code):
                link.close()  # or it would wait for us
                self._settle(0)
                raise self._refusal(message, exit_code)
            case Hello() if first.version != VERSION:
                reason = f"the engine host speaks version {first.version} of the link, we {VERSION}"
            case Hello() if first.digest != self._place.digest:
                reason = REPLACED
            case Hello():
                return first
            case _:
                reason = "the engine host did not say hello"
        raise AttachError(f"{reason}; {ANEW}")

    def _refusal(self, message: str, exit_code: int) -> AttachError:
        """Say why a host can't serve, and note it where trying again would change nothing."""
        if exit_code == FINAL_CODE:
            until_s = time.monotonic() + FINAL_S
            self._verdict = Verdict(message, _stamp(self._place.manifest), until_s)
        return AttachError(message)

    def _start_if_none_runs(self) -> None:
        """Start a host, unless ours is on its way.

        Raises:
            AttachError: ours has failed.
        """
        code = 0 if self._child is None else self._child.poll()
        if code is None:
            return
        ended = self._child
        self._child = None
        # With code 0 it found another host at work, which may just be ending.
        if ended is not None and code != 0:
            how = f"with code {code}" if code > 0 else f"by signal {-code}"
            message = f"the engine host ended {how} before it served; the log says more"
            raise self._refusal(message, code)
        self._check_manifest()
        self._child = subprocess.Popen(  # noqa: S603 - the command is our own
            self._place.command, stdin=subprocess.DEVNULL, stdout=2, cwd="/"
        )

    def _check_manifest(self) -> None:
        """Refuse to start a host for another artifact than the one that this front was loaded for.

        Raises:
            AttachError: it was replaced, or is gone.
        """
        manifest = self._place.manifest
        try:
            digest = hash_file(manifest).sha256
        except (OSError, ForerunError) as error:
            raise AttachError(f"{manifest} can't be read: {error}; bring it back") from error
        if digest != self._place.digest:
            raise AttachError(f"{REPLACED}; {ANEW}")


def _stamp(path: Path) -> tuple[int, ...]:
    """Give what tells a file from another of its name; nothing if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _reap(child: "subprocess.Popen[bytes]") -> None:
    """Take note of the end of a child, if it ends soon."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(REAP_S)
