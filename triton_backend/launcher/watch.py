"""Watches the stubs of a running server, which Triton itself never starts again, and calls their models ready as before.

A stub is a process that runs one front. When it dies, its model must be unloaded and loaded; requests that it was
answering stay without an answer until their deadline.
"""

from collections.abc import Sequence

from triton_backend.launcher import family
from triton_backend.launcher.server import TritonServer


class StubWatch:
    """Knows the stub of every model; asking is a look at a few files of the kernel."""

    def __init__(self, server: TritonServer, models: Sequence[str]) -> None:
        """Find the stubs of `models`, which are loaded."""
        self._server = server
        self._models = models
        self._stubs = self._find()

    def dead(self) -> list[str]:
        """Name the models whose stub has died."""
        return [
            model
            for model in self._models
            if model not in self._stubs or not family.is_alive(self._stubs[model])
        ]

    def reload(self, model: str) -> None:
        """Unload a model and load it again, with a new stub.

        Raises:
            ServerError: Triton did not do it.
        """
        self._server.control.unload(model)
        self._server.control.load(model)
        self._stubs = self._find()

    def _find(self) -> dict[str, family.Process]:
        return family.stubs_among(family.members(self._server.mark))
