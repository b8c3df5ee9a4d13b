"""`builder serve`: a model repository in the real Triton and behind the OpenAI shim, until told to stop.

The URLs go to stdout when all is ready. The main thread starts, watches and stops everything. When Triton or the
shim ends by itself, so does the command, with exit code 1 and the end of Triton's log.
"""

import contextlib
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from builder.cli.display import Rows, display_on
from builder.cli.failures import printable
from builder.cli.interruption import stop_signals_interrupt
from builder.cli.keys import read_keys
from builder.cli.numeric import DAY_S, FiniteRange
from builder.cli.sizes import format_duration
from builder.cli.validate import valid_repository
from builder.errors import ServerError, UserError
from builder.targets.machine import usable_threads
from triton_backend import openai
from triton_backend.launcher.addresses import Addresses, find_host, free_ports
from triton_backend.launcher.asgi_thread import AsgiThread, running_application
from triton_backend.launcher.deployed import Repository
from triton_backend.launcher.installation import find_installation
from triton_backend.launcher.kept_log import keep_log
from triton_backend.launcher.open_files import allow_many_files
from triton_backend.launcher.server import LaunchPlan, TritonServer, running_server
from triton_backend.launcher.watch import StubWatch
from triton_backend.openai.server import server_config
from triton_backend.openai.settings import ServedModel, ShimSettings

WATCH_S = 0.2
PORT = click.IntRange(min=0, max=65535)
SECONDS = FiniteRange(0, DAY_S)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder serve` asks for."""

    repository: Path
    tritonserver: Path | None
    host: str
    openai_port: int
    http_port: int
    grpc_port: int
    metrics_port: int
    api_key_file: Path | None
    ready_timeout: float
    drain_timeout: float


@click.command(short_help="Serve a model repository in Triton, and as an OpenAI API.")
@click.argument("repository", type=click.Path(path_type=Path), metavar="REPO")
@click.option(
    "--tritonserver",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Server to start.  [default: the one in the package nvidia-pytriton]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="IPv4 address to listen on, or a name that means one.",
)
@click.option(
    "--openai-port",
    type=PORT,
    default=9000,
    show_default=True,
    metavar="N",
    help="Port of the OpenAI API; any free one for 0, here and below.",
)
@click.option(
    "--http-port", type=PORT, default=8000, show_default=True, metavar="N", help="Triton's HTTP."
)
@click.option(
    "--grpc-port", type=PORT, default=8001, show_default=True, metavar="N", help="Triton's gRPC."
)
@click.option(
    "--metrics-port",
    type=PORT,
    default=8002,
    show_default=True,
    metavar="N",
    help="Triton's metrics.",
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keys of the OpenAI API, one a line.  [default: none is needed]",
)
@click.option(
    "--ready-timeout",
    type=SECONDS,
    default=300.0,
    show_default=True,
    metavar="S",
    help="Seconds until every model must be ready.",
)
@click.option(
    "--drain-timeout",
    type=SECONDS,
    default=1.5,
    show_default=True,
    metavar="S",
    help="Seconds that running answers get to finish when told to stop.",
)
def command(**options: Any) -> None:
    """Serve every model of the Triton model repository REPO.

    Starts Triton and an OpenAI-compatible API in front of it, prints their URLs when they are ready, and stops
    both on Ctrl-C or SIGTERM. Triton's API for loading models is closed; models that builder deploy did not write
    are loaded again when their files change.
    """
    with stop_signals_interrupt():
        try:
            serve(Options(**options))
        except ServerError as error:
            for note in getattr(error, "__notes__", ()):
                say(note)
            raise


class Stopped(Exception):  # noqa: N818 (no error)
    """All was ready, and then a signal said to stop."""


def say(text: str) -> None:
    """Write lines to stderr."""
    click.echo("\n".join(map(printable, text.splitlines())), err=True)


def serve(options: Options) -> None:
    """Start, announce, watch and stop.

    Raises:
        UserError: the repository, the server or an option can't be used.
        ServerError: Triton or the shim did not start, or ended by itself.
        KeyboardInterrupt: told to stop before all was ready, or again while stopping.
    """
    started = time.monotonic()
    allow_many_files()
    repository = valid_repository(options.repository)
    check_threads(repository)
    api_keys = read_keys(options.api_key_file)
    plan = launch_plan(options, repository)
    with (
        contextlib.suppress(Stopped),
        shim_failures_said(),
        running_server(plan) as triton,
        failures_kept(triton),
    ):
        triton.wait_ready(options.ready_timeout)
        config = server_config(
            shim_settings(repository, plan.addresses, api_keys, secret=triton.secret),
            host=plan.addresses.host,
            port=options.openai_port,
            drain_s=math.ceil(options.drain_timeout),
        )
        with running_application(config, service="openai") as shim, drained(triton, shim):
            took = format_duration(time.monotonic() - started)
            rows = [*urls(plan.addresses, shim.address), ("log", str(triton.log))]
            try:
                display_on(sys.stdout).facts(f"Ready in {took}", rows)
                watch(triton, shim, plan.fronts)
            except KeyboardInterrupt as signal:
                raise Stopped from signal


def check_threads(repository: Repository) -> None:
    """Refuse, before anything starts, what only a larger machine can serve; to prepare a repository for one is no mistake.

    Raises:
        UserError: a model asks for more threads than this machine runs.
    """
    for front in repository.fronts:
        try:
            usable_threads(front.settings.threads)
        except UserError as error:
            raise UserError(
                f"{front.model}: {error}; deploy it again with fewer --threads"
            ) from error


def launch_plan(options: Options, repository: Repository) -> LaunchPlan:
    """Decide what is started, and where it listens.

    Raises:
        UserError: there is no such host, a port is in use, or there is no server.
    """
    wanted = {
        "openai": options.openai_port,
        "http": options.http_port,
        "grpc": options.grpc_port,
        "metrics": options.metrics_port,
    }
    host = find_host(options.host)
    ports = free_ports(host, wanted)
    return LaunchPlan(
        installation=find_installation(options.tritonserver),
        repository=options.repository.absolute(),
        fronts=tuple(front.model for front in repository.fronts),
        others=repository.others,
        addresses=Addresses(host, ports["http"], ports["grpc"], ports["metrics"]),
        drain_s=options.drain_timeout,
    )


def shim_settings(
    repository: Repository, addresses: Addresses, api_keys: tuple[str, ...], *, secret: bytes
) -> ShimSettings:
    """Tell the shim what it serves: every model with the `forerun` face. Engines know its callers by the secret."""
    fronts = [front for front in repository.fronts if front.settings.face == "forerun"]
    return ShimSettings(
        grpc_address=addresses.grpc,
        models=tuple(ServedModel(front.model, front.settings.artifact) for front in fronts),
        api_keys=api_keys,
        secret=secret,
    )


@contextlib.contextmanager
def shim_failures_said() -> Iterator[None]:
    """Say what fails in the shim: it runs in this process, which has no other log."""
    logger, handler = logging.getLogger(openai.__name__), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("the OpenAI API: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def failures_kept(triton: TritonServer) -> Iterator[None]:
    """In the end, keep the log if it tells of a failure, and say where; clients were told to look there."""
    try:
        yield
    finally:
        kept = keep_log(triton.log)
        if kept is not None:
            say(f"something failed while serving; the log is kept in {kept}")


@contextlib.contextmanager
def drained(triton: TritonServer, shim: AsgiThread) -> Iterator[None]:
    """In the end, let running answers finish; they pass through both, so both begin to stop at once."""
    try:
        yield
    finally:
        shim.begin_close()
        triton.drain()


def urls(addresses: Addresses, shim_address: str) -> Rows:
    """Give the names and URLs of all services."""
    return [
        ("openai", f"http://{shim_address}/v1"),
        ("http", f"http://{addresses.http}"),
        ("grpc", addresses.grpc),
        ("metrics", f"http://{addresses.metrics}/metrics"),
    ]


def watch(triton: TritonServer, shim: AsgiThread, fronts: Sequence[str]) -> None:
    """Look after everything until interrupted; a model whose front died is loaded again, and the others served on.

    Raises:
        ServerError: Triton or the shim ended by itself.
    """
    stubs = StubWatch(triton, fronts)
    while True:
        triton.check_alive()
        shim.check_alive()
        for text in stubs.look():
            say(text)
        time.sleep(WATCH_S)
