"""Every error that Forerun raises on purpose.

    ForerunError                  one line for people: what was given, what is allowed, what to do next
    ├── UserError                 the request can't be met as asked (exit code 2)
    │   ├── CheckpointError       a source file is missing, broken or contradicts itself
    │   ├── UnsupportedError      well formed, but nothing here implements it
    │   ├── ArtifactError         an artifact is missing, altered or made for something else
    │   └── RequestError          a generation request that can't be admitted
    │       └── UnavailableError  not now; it may be tried again
    │           └── QueueFullError
    └── WorkError                 the request was right and the work failed (exit code 1)
        ├── BuildError            compiling failed
        ├── EngineError           an engine failed while it ran
        ├── GateError             an artifact is further from its checkpoint than it may be
        └── ServerError           a server did not start, or ended by itself

Messages never contain prompts or generated text.
"""

import difflib
from collections.abc import Iterable


class ForerunError(Exception):
    """Base of all errors raised on purpose; `str(error)` is one clear line."""

    exit_code = 1


class UserError(ForerunError):
    """What the user gave or asked for can't be used."""

    exit_code = 2


class CheckpointError(UserError):
    """A checkpoint file is missing, truncated, or contradicts another."""


class UnsupportedError(UserError):
    """Well-formed input that asks for something Forerun does not implement."""


class ArtifactError(UserError):
    """An artifact is incomplete, altered, or made by or for something else."""


class RequestError(UserError):
    """A generation request that can never be admitted as it stands."""


class UnavailableError(RequestError):
    """A generation request that can't be taken now; later it may be."""


class QueueFullError(UnavailableError):
    """A generation request that comes while too many wait already."""


class WorkError(ForerunError):
    """The request was right; doing it failed."""


class BuildError(WorkError):
    """Compiling failed."""


class EngineError(WorkError):
    """An engine failed while it ran."""


class GateError(WorkError):
    """An artifact is further from its checkpoint than its thresholds allow."""


class ServerError(WorkError):
    """A server did not start, or ended by itself; the notes of the error may hold the end of its log."""


MAX_SHOWN = 64
"""Characters of an unknown name that are shown and compared: more would fill a log, and take a long time."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Describe an unknown name, with close matches and the whole list of known ones."""
    cut = f", cut from {len(name)} characters" if len(name) > MAX_SHOWN else ""
    return f"unknown {kind} {name[:MAX_SHOWN]!r}{cut}.{known_names(name, known)}"


def known_names(name: str, known: Iterable[str]) -> str:
    """Give the names that are close to an unknown one, and all known ones, without repeating it."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:MAX_SHOWN], names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{hint} Known: {', '.join(names) or 'none'}."
