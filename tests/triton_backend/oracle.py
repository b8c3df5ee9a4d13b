"""What the engine must answer over the scripted executor: one request alone, token by token, in plain Python.

No batches, no blocks, no candidates: every token looks at a whole row of logits. It shares no code with
the serving core, not even the random numbers.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from builder.artifact.step import RowAsks
from builder.targets.executor import result_from_rows
from builder.targets.scripted.oracle import next_logits
from triton_backend.request import SamplingParams


@dataclass(frozen=True)
class Answer:
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    stop_reason: int | str | None


@dataclass(frozen=True)
class Model:
    """The scripted model and what is known of it."""

    vocab_size: int
    end_token_ids: frozenset[int]
    num_groups: int = 1

    def answer(
        self, prompt: tuple[int, ...], params: SamplingParams, *, seed: int, max_known: int
    ) -> Answer:
        """Generate to the end."""
        known = list(prompt)
        stopping = set(params.stop_token_ids)
        if not params.ignore_eos:
            stopping |= self.end_token_ids
        text = ""
        while True:
            logits = next_logits(known, vocab_size=self.vocab_size, num_groups=self.num_groups)
            if len(known) - len(prompt) < params.min_tokens:
                for token_id in stopping:
                    logits[token_id] = -math.inf
            token_id = pick(logits, params, seed=seed, position=len(known))
            known.append(token_id)
            generated = tuple(known[len(prompt) :])
            if token_id in stopping:
                return Answer(generated, text, "stop", token_id)
            text += letter(token_id)
            found = [(text.index(stop), stop) for stop in params.stop if stop in text]
            if found:
                place, stop = min(found)
                return Answer(generated, text[:place], "stop", stop)
            if len(known) == max_known:
                return Answer(generated, text, "length", None)


def letter(token_id: int) -> str:
    """Give the text of a token."""
    return "abcdefgh"[token_id % 8]


def pick(logits: list[float], params: SamplingParams, *, seed: int, position: int) -> int:
    """Pick one id from a whole row. The executor's log-sum-exp is taken as it is, rounded to float32."""
    order = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    if params.temperature < 1e-3:
        return order[0]
    at = np.array([params.temperature], np.float32)
    logsumexp = result_from_rows(np.array([logits], np.float32), RowAsks(0, at)).logsumexp
    temperature, largest = float(at[0]), logits[order[0]]
    weights = [math.exp((logits[token_id] - largest) / temperature) for token_id in order]
    mass = math.exp(float(logsumexp[0]) - largest / temperature)
    if 0 < params.top_k < len(logits):
        mass = sum(weights[: params.top_k])
    if params.top_p < 1:
        wanted = params.top_p * mass
        mass = next((reached for reached in accumulate(weights) if reached >= wanted), wanted)
    wanted = number(seed, position) * mass
    passing = (i for i, reached in zip(order, accumulate(weights), strict=True) if reached > wanted)
    return next(passing, order[0])


def number(seed: int, position: int) -> float:
    """Give the random number of the first choice at a position."""
    key = (seed % 2**128).to_bytes(16, "little")
    digest = hashlib.blake2b(struct.pack("<QQ", 0, position), key=key, digest_size=8).digest()
    return (struct.unpack("<Q", digest)[0] >> 11) / 2**53
