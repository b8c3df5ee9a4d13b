"""Watches the stubs of a running server, which Triton itself never starts again, and calls their models ready as before.

A stub is a process that runs one front. When it dies, its model is taken out of the server's repository and put
back; requests that it was answering stay without an answer until their deadline.
"""

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence

from triton_backend.launcher import family
from triton_backend.launcher.server import TritonServer

LATE_S = 120.0
"""Until users are told that Triton does not load or unload a model."""
FRESH_S = 0.5
"""How long a failed load is known to be over: Triton tries again a second later."""
DELAYS_S = (2.0, 4.0, 8.0, 16.0, 32.0)
"""After each attempt to load a model that failed; the last one is for all further ones."""


class StubWatch:
    """Knows the stub of every model; looking is a look at a few files of the kernel."""

    def __init__(
        self,
        server: TritonServer,
        models: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch `models`, which are loaded."""
        self._server = server
        self._models = models
        self._clock = clock
        self._stubs: dict[str, family.Process] = {}
        self._recoveries: dict[str, Iterator[str]] = {}

    def look(self) -> list[str]:
        """Do the next thing for every model whose stub has died; give what users should know, a line or more each.

        Without an answer of the kernel, such as for want of file descriptors, nothing is done this time.
        """
        try:
            self._server.close_regions()
            dead = self._dead()
            if dead or self._recoveries:
                self._stubs = self._find()
        except OSError:
            return []
        for model in dead:
            self._recoveries[model] = self._recovery(model)
        said = [(model, next(recovery, None)) for model, recovery in self._recoveries.items()]
        for model, line in said:
            if line is None:
                del self._recoveries[model]
        return [line for _, line in said if line]

    def _dead(self) -> list[str]:
        suspects = [model for model in self._models if not self._lives(model)]
        if suspects:
            self._stubs = self._find()
        return [model for model in suspects if model not in self._stubs]

    def _lives(self, model: str) -> bool:
        if model in self._recoveries:
            return True
        stub = self._stubs.get(model)
        return stub is not None and family.is_alive(stub)

    def _find(self) -> dict[str, family.Process]:
        return family.stubs_among(family.members(self._server.mark))

    def _recovery(self, model: str) -> Iterator[str]:
        """Load a model again, however many attempts that takes; yield at every look, mostly nothing to say."""
        self._server.mirror.take_out(model)
        not_before = self._clock()
        for delay_s in itertools.chain(DELAYS_S, itertools.repeat(DELAYS_S[-1])):
            yield from self._gone(model, not_before)
            start = self._server.log_size
            self._server.mirror.put_back(model)
            if (yield from self._loaded(model)):
                yield f"the front of {model} died; it was loaded again"
                return
            self._server.mirror.take_out(model)
            not_before = self._clock() + delay_s
            reason = self._server.log_tail(start)
            yield f"{reason}\nthe front of {model} died and can't be loaded again; next try in {delay_s:g} s"

    def _gone(self, model: str, not_before: float) -> Iterator[str]:
        """Wait until a model that was taken out is unloaded, and the time has come."""
        complaint = self._complaint(f"Triton does not unload {model}, whose front died")
        while self._clock() < not_before or self._server.readiness.is_model_ready(model):
            yield next(complaint)

    def _loaded(self, model: str) -> Generator[str, None, bool]:
        """Wait until a model that was put back is ready: true; or its new stub has ended: false."""
        complaint = self._complaint(f"Triton does not load {model}, whose front died")
        seen_s = float("-inf")
        while not self._server.readiness.is_model_ready(model):
            if model in self._stubs:
                seen_s = self._clock()
            elif self._clock() - seen_s < FRESH_S:
                return False
            yield next(complaint)
        return True

    def _complaint(self, text: str) -> Iterator[str]:
        """Yield nothing, until it is late; then the text, once."""
        deadline = self._clock() + LATE_S
        while self._clock() < deadline:
            yield ""
        yield f"{text}; the others are served on; start builder serve again"
        yield from itertools.repeat("")
