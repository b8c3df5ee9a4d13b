"""What the shim is told when it starts."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model behind the shim."""

    name: str
    """What clients call it: Triton's name of its `forerun` face."""
    artifact: Path
    """Where its tokenizer and chat template are."""


@dataclass(frozen=True, slots=True)
class ShimSettings:
    """What the shim serves, to whom, and within which bounds."""

    grpc_address: str
    """`host:port` of Triton's gRPC service."""
    models: tuple[ServedModel, ...]
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys that open every route; without any, all routes are open."""
    secret: bytes = field(default=b"", repr=False)
    """The deployment's, by which the engine host believes who a caller is; without one nobody shares blocks."""
    max_body_bytes: int = 4 * 2**20
    max_connections: int = 1024
    """Open at once; a further one is told to try again. Never more than half of the files that may be open."""
    head_s: float = 20.0
    """Time from the first byte of a request, or the start of a connection, to the end of its head."""
    body_s: float = 60.0
    """Time for its body."""
    max_prompts: int = 64
    """Prompts in one completions request."""
    deadline_s: float = 600.0
    """Time from submit to the end of an answer. It also ends calls that a killed server left hanging."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch: `created` in answers, and the date in chat templates."""
