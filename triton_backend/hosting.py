"""The life of an engine host: load while fronts join, serve them until nobody is left or it is told to stop."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from builder.artifact import manifest as manifests
from builder.artifact.gate_report import check_gate
from builder.artifact.store import hash_file, open_artifact
from builder.errors import EngineError, ForerunError
from triton_backend.engine_options import read_assignments
from triton_backend.fronts import Fronts
from triton_backend.joined_front import Service
from triton_backend.link import Link
from triton_backend.loading import load_model
from triton_backend.messages import VERSION, FromFront, Hello
from triton_backend.reception import Reception
from triton_backend.rendezvous import unmark
from triton_backend.tenancy import read_secret
from triton_backend.text_queue import MAX_OF_TENANT, TextQueue
from triton_backend.worker import Worker

logger = logging.getLogger(__name__)

FIRST_FRONT_S = 30.0
TELL_S = 5.0
"""What fronts get to hear why the engine could not be loaded."""
SILENCE_S = 60.0
"""A front pings every second. One that is silent for so long hangs, and neither it nor its clients will be back."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What a host serves, and how."""

    socket: Path
    artifact: Path
    threads: int | None
    """Threads of the engine; None lets it take every core it may use."""
    grace_s: float
    """What a front that was killed gets to be back before the engine is given up."""
    engine: tuple[str, ...] = ()
    """Settings of the engine, as NAME=VALUE."""
    secret: Path | None = None
    """File of the secret under which callers are signed for; without one nobody shares blocks."""
    allow_missed_gate: bool = False
    """Serve an artifact that missed its quality gate all the same."""


def serve(options: HostOptions, listener: socket.socket) -> int:
    """Serve the fronts that connect to `listener`, and give the exit code of the process.

    The caller has blocked SIGTERM, for all threads; it is waited for here.
    """
    loaded: Future[Service] = Future()
    fronts = Fronts(loaded)
    _in_background(lambda: _accept(listener, fronts))
    _in_background(lambda: _stop_when_told(options.socket, loaded))
    _in_background(lambda: _stop_when_deserted(fronts, options.grace_s))
    try:
        service = _load(options, fronts)
    except Exception as error:  # noqa: BLE001 - whatever it is, the fronts must hear of it
        failure = _told(error, options.artifact)
        loaded.set_exception(failure)
        fronts.wait_until_told(TELL_S)
        return failure.exit_code
    with contextlib.closing(service.model):
        loaded.set_result(service)
        logger.info("serving %s", options.artifact)
        try:
            service.worker.run()
        finally:
            fronts.end_all()
        logger.info("stopped")
    return 0


def _load(options: HostOptions, fronts: Fronts) -> Service:
    """Verify the artifact and load its engine."""
    config = read_assignments(options.engine)
    secret = None if options.secret is None else read_secret(options.secret)
    artifact = open_artifact(options.artifact)
    check_gate(
        artifact.root,
        artifact.manifest,
        allow_missed=options.allow_missed_gate,
        warn=logger.warning,
    )
    digest = hash_file(artifact.path(manifests.FILE_NAME)).sha256
    model = load_model(artifact, threads=options.threads, config=config)
    hello = Hello(VERSION, digest, model.executor.vocab_size, model.executor.limits)
    reception = Reception(model, policy=config.policy, secret=secret)
    prompts, constraints = TextQueue(), TextQueue(max_of_tenant=MAX_OF_TENANT)
    for work in (
        prompts.serve_shortest,
        prompts.serve_oldest,
        prompts.give_up_late,
        constraints.serve_in_turn,
        constraints.serve_in_turn,
        constraints.give_up_late,
    ):
        _in_background(partial(_again_and_again, work))
    return Service(hello, model, Worker(model.engine, fronts), reception, prompts, constraints)


def _told(error: Exception, artifact: Path) -> ForerunError:
    """Log why the engine could not be loaded, and give it as one line."""
    if isinstance(error, ForerunError):
        logger.error("%s", error)
        return error
    logger.error("loading %s failed", artifact, exc_info=error)
    reason = " ".join(str(error).split())
    return EngineError(f"loading {artifact} failed with {type(error).__name__}: {reason}")


def _again_and_again(work: Callable[[], None]) -> None:
    while True:
        work()


def _accept(listener: socket.socket, fronts: Fronts) -> None:
    while True:
        connection, _ = listener.accept()
        connection.settimeout(SILENCE_S)
        link: Link[FromFront] = Link(connection, FromFront)
        _in_background(partial(fronts.attend, link))


def _stop_when_told(path: Path, loaded: "Future[Service]") -> None:
    """Stop on SIGTERM: in good order, or at once while there is nothing to bring in order."""
    signal.sigwait({signal.SIGTERM})
    if not loaded.done():
        unmark(path)
        os._exit(0)
    if loaded.exception() is None:
        loaded.result().worker.stop()
    # Else the main thread is ending, with an exit code that says why.


def _stop_when_deserted(fronts: Fronts, grace_s: float) -> None:
    fronts.wait_until_deserted(first_s=FIRST_FRONT_S, grace_s=grace_s)
    logger.info("no front is left")
    os.kill(os.getpid(), signal.SIGTERM)


def _in_background(work: Callable[[], None]) -> None:
    # Daemons: none of them holds anything that must be saved, and the process must always end.
    threading.Thread(target=work, daemon=True).start()
