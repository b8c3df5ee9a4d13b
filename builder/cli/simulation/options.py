"""What the command line of `builder simulate` asks for, and what of it goes together."""

import os
from dataclasses import dataclass
from pathlib import Path

from builder.cli.simulation.plot import refuse_plot
from builder.errors import UserError
from triton_backend.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder simulate` asks for."""

    policy: tuple[str, ...]
    load: tuple[float, ...] | None
    rate: tuple[float, ...] | None
    requests: int
    prompt: str
    answer: str
    lengths: str
    tenants: int
    trace: Path | None
    seed: int
    skip: float
    artifact: Path | None
    target: str | None
    threads: int | None
    cost: Path | None
    max_seq_len: int | None
    max_num_seqs: int | None
    max_num_tokens: int | None
    kv_tokens: int | None
    max_waiting: int
    max_waiting_tokens: int | None
    max_chunk_tokens: int | None
    prefix_reuse: bool
    deadline: float | None
    slo_ttft: float
    slo_itl: float
    json: Path | None
    plot: Path | None
    quiet: bool

    def config(self, policy: str) -> EngineConfig:
        """Give the engine's settings under a policy.

        Raises:
            UserError: there is no such policy, or a setting is out of bounds.
        """
        return EngineConfig(
            policy=policy,
            max_waiting=self.max_waiting,
            max_waiting_tokens=self.max_waiting_tokens,
            max_chunk_tokens=self.max_chunk_tokens,
            prefix_reuse=self.prefix_reuse,
        )


def refuse_contradictions(options: Options) -> None:
    """Refuse what can't be had together, and files that can't be written.

    Raises:
        UserError: names the options and what to do.
    """
    if options.load and options.rate:
        raise UserError("--load and --rate both say how many requests come; give one of them")
    if options.artifact and options.cost:
        raise UserError("--artifact measures what --cost would say; give one of them")
    if not options.artifact and (options.target or options.threads):
        raise UserError("--target and --threads are about an artifact; add --artifact DIR")
    for name, path in (("--json", options.json), ("--plot", options.plot)):
        if path is not None:
            refuse_unwritable(name, path)
    if options.plot is not None:
        refuse_plot(options.plot)


def refuse_unwritable(name: str, path: Path) -> None:
    """Refuse a file that can't be written, before the work whose result it would hold.

    Raises:
        UserError: it is a folder, or in none, or not ours to write.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"{name} {path}: there is no such folder; create it first")
    if path.is_dir():
        raise UserError(f"{name} {path} is a folder; name a file in it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{name} {path} can't be written; choose another place")
