"""Runs a torch model over batches of samples, to be measured: alone, or with gradients of what it loses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from builder.quant.calibration.samples import Batch
from builder.quant.calibration.watching import counting_tokens

IGNORED = -100
"""Stands for a token that nothing is asked of, in torch's losses."""


class Stages(Protocol):
    """Hears how far it is: a named stage of `total` tokens, then tokens done."""

    def stage(self, name: str, total: int) -> None: ...

    def advance(self, amount: int) -> None: ...


@dataclass(slots=True)
class Measuring:
    """Passes over the same batches: algorithms look more than once."""

    runs: Sequence[Batch]
    progress: Stages
    seen: Counter[str] = field(default_factory=Counter)
    """Tokens that each layer saw in the last pass."""
    passes: int = 0

    def all(self, model: Any) -> None:
        """Run a model over all batches."""
        for batch in self.runs:
            self.one(model, batch)

    def one(self, model: Any, batch: Batch) -> None:
        """Run a model over one batch; the first begins a pass."""
        if batch is self.runs[0]:
            self.passes += 1
            self.seen.clear()
            self.progress.stage(f"calibrate, pass {self.passes}", count_tokens(self.runs))
        with counting_tokens(model, self.seen):
            run(model, [batch], self.progress)


def run(model: Any, runs: Sequence[Batch], progress: Stages) -> None:
    """Run a model over batches; what it answers is dropped."""
    import torch  # noqa: PLC0415 (of the extra `quant`)

    with torch.inference_mode():
        for batch in runs:
            ids, positions = map(torch.from_numpy, (batch.token_ids, batch.positions))
            # Without a mask and a cache, transformers keeps samples apart where positions start again.
            model(
                input_ids=ids.long(),
                position_ids=positions.long(),
                use_cache=False,
                logits_to_keep=1,
            )
            progress.advance(batch.token_ids.size)


def run_backwards(model: Any, batch: Batch, progress: Stages) -> None:
    """Run a model over a batch, row by row, and back again from how badly it foretells the next token."""
    import torch  # noqa: PLC0415 (of the extra `quant`)

    for row, places in zip(batch.token_ids, batch.positions, strict=True):
        ids, positions = (torch.from_numpy(each).long()[None] for each in (row, places))
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        wanted = torch.where(
            positions[:, 1:] == 0, IGNORED, ids[:, 1:]
        )  # no sample foretells the next
        loss = torch.nn.functional.cross_entropy(
            logits[0, :-1].float(), wanted[0], reduction="sum", ignore_index=IGNORED
        )
        torch.autograd.backward(loss)
        progress.advance(row.size)


def count_tokens(runs: Sequence[Batch]) -> int:
    """Count the tokens of batches."""
    return sum(batch.token_ids.size for batch in runs)
