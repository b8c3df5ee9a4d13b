"""The scripted engine behind `builder generate`, and what it must say by the oracle."""

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from click.testing import CliRunner, Result

from builder.artifact.config import Limits
from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.artifact.store import Artifact
from builder.cli.main import main
from builder.errors import EngineError
from builder.targets.scripted.execute import ScriptedExecutor
from builder.targets.scripted.oracle import next_logits

VOCAB = 259
ENDS = (256, 258)
LIMITS = Limits(max_seq_len=64, max_num_seqs=3, max_num_tokens=16, max_logit_rows=3, num_blocks=17)


class Watched(ScriptedExecutor):
    """Counts its steps, and remembers how it was opened and that it was closed."""

    fail_at: ClassVar[int] = -1

    def __init__(self, artifact: Artifact, *, target: str | None, threads: int | None) -> None:
        super().__init__(LIMITS, block_size=8, vocab_size=VOCAB)
        self.root = artifact.root
        self.opened_with = (target, threads)
        self.is_closed = False
        self.num_steps = 0

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        self.num_steps += 1
        if self.num_steps == self.fail_at:
            raise EngineError("the device is gone")
        return super().execute(step, asks)

    def close(self) -> None:
        self.is_closed = True
        super().close()


def generate(artifact: Path, *arguments: object, stdin: bytes = b"") -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["generate", *map(str, (artifact, *arguments))], input=stdin)


def tokens_of(prompt: Sequence[int], max_tokens: int, ends: Sequence[int] = ENDS) -> list[int]:
    """Greedy tokens by the oracle, the one that ends the answer included."""
    known = list(prompt)
    while len(known) < len(prompt) + max_tokens:
        logits = next_logits(known, vocab_size=VOCAB)
        known.append(logits.index(max(logits)))
        if known[-1] in ends:
            break
    return known[len(prompt) :]


def text_of(prompt: Sequence[int], max_tokens: int) -> str:
    """Greedy text by the oracle."""
    data = bytes(token for token in tokens_of(prompt, max_tokens) if token < 256)
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def line_of(prompt: Sequence[int], max_tokens: int) -> str:
    """What the command must print for a prompt."""
    text = text_of(prompt, max_tokens)
    return text if text.endswith("\n") else text + "\n"
