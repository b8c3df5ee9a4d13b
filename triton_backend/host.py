"""The engine host: `python -m triton_backend.host --socket PATH --artifact DIR [--threads N] [--engine NAME=VALUE]...`.

One process per deployment: it loads the engine and serves the fronts that join it by the socket. It ends by itself
when no front is left, and in good order on SIGTERM. Ctrl-C of a terminal goes to everybody in the group and is
the server's to handle, so SIGINT is ignored.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from triton_backend.rendezvous import claimed, sweep

GRACE_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a host and give its exit code: 0 also where another host serves the socket already."""
    read = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s engine host %(process)d: %(message)s"
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A thread waits for it: a handler would run on the main thread, and would be late by one wake-up if the signal
    # came just before that thread began to wait for work. An idle host was seen to miss its stop that way.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with claimed(read.socket) as listener:
        if listener is None:
            return 0
        sweep(read.socket.parent)
        # Fronts that load at once each start a host. All but one end here, before numpy and the engine are
        # imported; and fronts can connect 0.2 s earlier.
        from triton_backend.hosting import HostOptions, serve  # noqa: PLC0415

        options = HostOptions(
            socket=read.socket,
            artifact=read.artifact,
            threads=read.threads,
            grace_s=read.grace,
            engine=tuple(read.engine),
            secret=read.secret_file,
            allow_missed_gate=read.allow_missed_gate,
        )
        return serve(options, listener)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m triton_backend.host", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where fronts join")
    parser.add_argument("--artifact", type=Path, required=True, help="folder of the artifact")
    parser.add_argument("--threads", type=int, help="threads of the engine; all cores without it")
    parser.add_argument(
        "--engine", action="append", default=[], metavar="NAME=VALUE", help="setting of the engine"
    )
    parser.add_argument(
        "--secret-file", type=Path, help="file of the secret under which callers are signed for"
    )
    parser.add_argument(
        "--allow-missed-gate",
        action="store_true",
        help="serve an artifact that missed its quality gate all the same",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=GRACE_S,
        help="seconds to wait for a front after the last left",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
