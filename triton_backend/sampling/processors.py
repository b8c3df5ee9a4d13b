"""Logits processors: functions of installed packages, asked for by name and never sent by a client.

A package offers one under the entry-point group `forerun.logits_processors`. It is called for each row as
`processor(prompt_token_ids, answer_token_ids, logits)`, with int32 arrays and the float32 logits `[V]`, which
it edits in place. The same arguments must have the same effect: it is called again after a preemption.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

import numpy as np

from builder.artifact.step import Float32, Int32
from builder.errors import RequestError, unknown_name
from triton_backend.failures import log_failure
from triton_backend.rows import LogitRow

GROUP = "forerun.logits_processors"
Processor = Callable[[Int32, Int32, Float32], object]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Processing:
    """Calls the processors of one row, in the order in which the request names them."""

    row: LogitRow
    processors: tuple[tuple[str, Processor], ...]

    def keeps(self, token_id: int) -> bool:  # noqa: ARG002
        """See `Edit`: nobody knows what it does."""
        return False

    def apply(self, logits: Float32) -> None:
        """See `Edit`. A processor that fails leaves no finite logits: its answer ends, and no other."""
        prompt, answer = np.split(self.row.known_ids, [self.row.sequence.num_prompt])
        for name, processor in self.processors:
            try:
                processor(prompt, answer, logits)
            except Exception as failure:  # noqa: BLE001 - one answer fails, and others go on
                log_failure(logger, f"the logits processor {name} failed", failure)
                logits[:] = np.nan
                return


class Processors:
    """The processors installed here; one is loaded when it is first asked for."""

    def __init__(self, find: Callable[[], Iterable[EntryPoint]] | None = None) -> None:
        """Take what finds them: by default the entry points of the installed packages."""
        self._find = _installed if find is None else find
        self._loaded: dict[str, Processor] = {}
        self._unusable: dict[str, str] = {}
        """Why those that are installed can't be used: trying again would import whole packages again."""

    def load(self, names: Iterable[str]) -> None:
        """Make sure that the processors are at hand.

        Raises:
            RequestError: one is not installed, or can't be loaded.
        """
        for name in names:
            if name not in self._loaded:
                self._loaded[name] = self._load(name)

    def processing_of(self, row: LogitRow) -> Processing | None:
        """Give what the processors of a row do; they were loaded at submit."""
        names = row.sequence.request.params.logits_processors
        if not names:
            return None
        return Processing(row, tuple((name, self._loaded[name]) for name in names))

    @cached_property
    def _entries(self) -> Mapping[str, list[EntryPoint]]:
        """What is installed, by name; listed once, since that reads a file of every installed package."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in self._find():
            entries.setdefault(entry.name, []).append(entry)
        return entries

    def _load(self, name: str) -> Processor:
        if name not in self._entries:
            raise RequestError(unknown_name("logits processor", name, self._entries))
        if name not in self._unusable:
            try:
                return _loaded(name, self._entries[name])
            except RequestError as error:
                self._unusable[name] = str(error)
                raise
        raise RequestError(self._unusable[name])


def _loaded(name: str, entries: Sequence[EntryPoint]) -> Processor:
    try:
        processor = entries[0].load()
    except Exception as failure:  # any package may fail in any way
        kind = type(failure).__name__
        raise RequestError(
            f"the logits processor {name!r} is installed but can't be loaded ({kind}); leave it out."
        ) from failure
    if len(entries) > 1 or not callable(processor):
        problem = "no function" if len(entries) == 1 else "installed by more than one package"
        raise RequestError(f"the logits processor {name!r} is {problem}; leave it out.")
    loaded: Processor = processor
    return loaded


def _installed() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)
