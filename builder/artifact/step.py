"""The step contract: all that crosses from the engine loop to an executor, and back.

Letters: T tokens in a step, S sequences in a step, B blocks per sequence, V vocabulary, J rows whose
logits are wanted, G KV groups, C block copies, N candidates per row. All integers are int32.
A *slot* is `block * block_size + offset`: the place of one token in a pool. Block 0 is reserved for padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepTensors:
    """One step, laid out: sequence after sequence, each with one or more pending tokens."""

    token_ids: Int32
    """`[T]` tokens to compute."""
    positions: Int32
    """`[T]` absolute position of each token in its sequence."""
    query_start: Int32
    """`[S + 1]` tokens of sequence s are `query_start[s] .. query_start[s + 1]`."""
    seq_lens: Int32
    """`[S]` tokens of the sequence whose KV exists after this step."""
    block_tables: Int32
    """`[G, S, B]` block ids of each sequence in order; entries past the last are 0."""
    slot_mapping: Int32
    """`[G, T]` slot that each token's KV is written to."""
    logit_rows: Int32
    """`[J]` indices into T, ascending: the tokens whose logits are wanted."""
    block_copies: Int32
    """`[C, 3]` (group, source, destination), done before any write: copy-on-write of shared blocks."""
    adapter_slots: Int32 | None = None
    """`[S]` adapter of each sequence; None when the artifact has no adapters."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        """S."""
        return len(self.seq_lens)


@dataclass(frozen=True, slots=True)
class RowAsks:
    """What the sampler needs of the J rows of a step. It stays on rank 0."""

    num_candidates: int
    """N: candidates per row; 0 when the arg-max of every row is enough."""
    temperatures: Float32
    """`[J]` temperature at which each row's log-sum-exp is taken; 0 where none is needed."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gives for its J rows. Ties of logits go to the lower id, everywhere."""

    argmax: Int32
    """`[J]` id of the largest logit; -1 where that is not a finite number."""
    candidate_ids: Int32
    """`[J, N]` ids of the N largest logits, largest first."""
    candidate_logits: Float32
    """`[J, N]` their logits, unscaled."""
    logsumexp: Float32
    """`[J]` log-sum-exp over V of `logits / temperature`; 0 where the temperature asked was 0."""
    full_row: Callable[[int], Float32]
    """Give row j's logits `[V]`, unscaled. Valid until the executor's next step."""
    likeliest: "Likeliest"
    """Give more candidates of some rows, ids and logits `[K, N]`, where those at hand did not do. Valid as long."""


class Likeliest(Protocol):
    """Ranks whole rows."""

    def __call__(self, rows: Sequence[int], num_candidates: int) -> tuple[Int32, Float32]:
        """Give ids and logits `[K, N]` of the N largest logits of K rows, as candidates are; N is V at most."""
        ...
