"""Runs a uvicorn server in a thread of this process, which it can't outlive.

Stopping takes two steps, so that the application and the server behind it let their requests finish at the same time.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import uvicorn

from builder.errors import ServerError
from triton_backend.launcher.addresses import joined, listen

POLL_S = 0.02
START_S = 60.0
CLOSE_S = 2.0
"""Beyond the drain: until what was still running is cancelled and the loop has ended."""


@contextlib.contextmanager
def running_application(config: uvicorn.Config, *, service: str) -> Iterator["AsgiThread"]:
    """Run the application of `config` until the end of the context.

    Raises:
        UserError: the port can't be listened on.
        ServerError: the application did not start.
    """
    thread = AsgiThread(config, service=service)
    try:
        thread.wait_started()
        yield thread
    finally:
        thread.close()


class AsgiThread:
    """One uvicorn server in one thread."""

    def __init__(self, config: uvicorn.Config, *, service: str) -> None:
        """Listen where `config` says (on any free port for 0), and start the thread.

        Raises:
            UserError: the port can't be listened on.
        """
        self._service = service
        self._listener = listen(config.host, config.port, service)
        self._server = uvicorn.Server(config)
        self._drain_s = config.timeout_graceful_shutdown or 0
        self._thread = threading.Thread(target=self._run, name=service, daemon=True)
        self.address = joined(config.host, int(self._listener.getsockname()[1]))
        self._thread.start()

    def wait_started(self) -> None:
        """Wait until requests are taken.

        Raises:
            ServerError: the application ended instead, or took too long.
        """
        deadline = time.monotonic() + START_S
        while not self._server.started:
            self.check_alive()
            if time.monotonic() > deadline:
                raise ServerError(f"the {self._service} service did not start in {START_S:g} s")
            time.sleep(POLL_S)

    def check_alive(self) -> None:
        """Refuse an application that has ended.

        Raises:
            ServerError: it has.
        """
        if not self._thread.is_alive():
            raise ServerError(f"the {self._service} service ended by itself")

    def begin_close(self) -> None:
        """Take no new requests; those that run may finish until the drain is over."""
        self._server.should_exit = True

    def close(self) -> None:
        """Wait until all requests have ended or were cancelled."""
        self.begin_close()
        self._thread.join(self._drain_s + CLOSE_S)
        self._listener.close()

    def _run(self) -> None:
        # The application's failure is its own to log; `check_alive` tells of its end.
        with contextlib.suppress(SystemExit):
            self._server.run(sockets=[self._listener])
