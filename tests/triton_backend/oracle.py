"""What the engine must answer over the scripted executor: one request alone, token by token, in plain Python.

No batches, no blocks, no candidates: every token looks at a whole row of logits. It shares no code with
the serving core, not even the random numbers.
"""

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

import numpy as np

from builder.artifact.step import RowAsks
from builder.targets.executor import result_from_rows
from builder.targets.scripted.oracle import next_logits
from triton_backend.request import SamplingParams


@dataclass(frozen=True)
class Logprobs:
    """How likely one token was: in float64, of the model itself."""

    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    stop_reason: int | str | None
    logprobs: tuple[Logprobs, ...] = ()


@dataclass(frozen=True)
class Model:
    """The scripted model and what is known of it."""

    vocab_size: int
    end_token_ids: frozenset[int]
    num_groups: int = 1

    def answer(
        self,
        prompt: tuple[int, ...],
        params: SamplingParams,
        *,
        seed: int,
        max_known: int,
        choice: int = 0,
    ) -> Answer:
        """Generate one choice to the end."""
        known = list(prompt)
        stopping = set(params.stop_token_ids)
        if not params.ignore_eos:
            stopping |= self.end_token_ids
        text, logprobs = "", []
        while True:
            logits = self.logits(known)
            edited = edit(logits, params, known, len(prompt), frozenset(stopping))
            token_id = pick(edited, params, seed=seed, position=len(known), choice=choice)
            if params.logprobs is not None:
                logprobs.append(logprobs_of(logits, token_id, params.logprobs))
            known.append(token_id)
            answer = Answer(tuple(known[len(prompt) :]), text, "length", None, tuple(logprobs))
            if token_id in stopping:
                ending = letter(token_id) if params.include_stop else ""
                return replace(
                    answer, text=text + ending, finish_reason="stop", stop_reason=token_id
                )
            text += letter(token_id)
            # What is complete before the answer has min_tokens tokens is text like any other.
            passed = params.min_tokens - 1
            stop = first_stop(text, params.stop, passed)
            if stop is not None:
                place = text.index(stop, max(0, passed + 1 - len(stop)))
                end = place + len(stop) * params.include_stop
                return replace(answer, text=text[:end], finish_reason="stop", stop_reason=stop)
            if len(known) == max_known:
                return replace(answer, text=text)

    def logits(self, known: list[int]) -> list[float]:
        """Give the row after `known` tokens."""
        return next_logits(known, vocab_size=self.vocab_size, num_groups=self.num_groups)

    def prompt_logprobs(self, prompt: tuple[int, ...], num_top: int) -> list[Logprobs]:
        """Tell how likely each token of the prompt but the first is."""
        return [
            logprobs_of(self.logits(list(prompt[:place])), prompt[place], num_top)
            for place in range(1, len(prompt))
        ]


def first_stop(text: str, stops: tuple[str, ...], num_passed: int) -> str | None:
    """Give the stop string that is found leftmost, of those complete after `num_passed` letters."""
    found = []
    for stop in stops:
        # A match that ends within the first letters is none, wherever it begins.
        place = text.find(stop, max(0, num_passed + 1 - len(stop)))
        if place >= 0:
            found.append((place, stop))
    return min(found)[1] if found else None


def letter(token_id: int) -> str:
    """Give the text of a token."""
    return "abcdefgh"[token_id % 8]


def edit(
    logits: list[float],
    params: SamplingParams,
    known: list[int],
    num_prompt: int,
    stopping: frozenset[int],
) -> list[float]:
    """Give a row as the request changes it before anything is cut: bias, penalties, bans."""
    row = list(logits)
    for token_id, bias in params.logit_bias:
        row[token_id] = rounded(row[token_id] + (-math.inf if bias == -100 else bias))
    for token_id in set(known):
        penalty = params.repetition_penalty
        row[token_id] = rounded(
            row[token_id] / penalty if row[token_id] > 0 else row[token_id] * penalty
        )
    for token_id, times in Counter(known[num_prompt:]).items():
        penalty = params.presence_penalty + times * params.frequency_penalty
        row[token_id] = rounded(row[token_id] - penalty)
    answer = tuple(known[num_prompt:])
    for token_id in banned(params, answer, stopping, len(row)):
        row[token_id] = -math.inf
    return row


def banned(
    params: SamplingParams, answer: tuple[int, ...], stopping: frozenset[int], vocab_size: int
) -> Iterator[int]:
    """Give the ids that can't come next: they complete a bad word, end too early, or break the constraint."""
    for word in params.bad_words:
        if len(word) <= len(answer) + 1 and answer[len(answer) - len(word) + 1 :] == word[:-1]:
            yield word[-1]
    if len(answer) < params.min_tokens:
        yield from stopping
    if params.constraint is not None:
        text, place = params.constraint.text, len(answer)
        yield from (each for each in range(vocab_size) if not is_allowed(text, each, place))


def rounded(logit: float) -> float:
    """Round to float32, as every link of the chain leaves its logits."""
    return float(np.float32(logit))


def is_allowed(constraint: str, token_id: int, place: int) -> bool:
    """Say whether the fake constraint "divisor shift" allows a token at a place of an answer."""
    divisor, shift = map(int, constraint.split())
    return (token_id + shift * place) % divisor != 0


def pick(
    logits: list[float], params: SamplingParams, *, seed: int, position: int, choice: int = 0
) -> int:
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
    if params.min_p > 0:
        mass = min(mass, sum(takewhile(lambda weight: weight >= params.min_p, weights)))
    if params.top_p < 1:
        wanted = params.top_p * mass
        mass = next((reached for reached in accumulate(weights) if reached >= wanted), wanted)
    wanted = number(seed, position, choice) * mass
    passing = (i for i, reached in zip(order, accumulate(weights), strict=True) if reached > wanted)
    return next(passing, order[0])


def number(seed: int, position: int, choice: int = 0) -> float:
    """Give the random number of a choice at a position."""
    key = (seed % 2**128).to_bytes(16, "little")
    digest = hashlib.blake2b(struct.pack("<QQ", choice, position), key=key, digest_size=8).digest()
    return (struct.unpack("<Q", digest)[0] >> 11) / 2**53


def logprobs_of(logits: list[float], token_id: int, num_top: int) -> Logprobs:
    """Tell how likely a token is by a row, and which are the likeliest."""
    order = sorted(range(len(logits)), key=lambda each: (-logits[each], each))
    mass = math.log(sum(math.exp(logit - logits[order[0]]) for logit in logits))
    told = [logits[each] - logits[order[0]] - mass for each in order]
    rank = order.index(token_id) + 1
    top = order[:num_top]
    return Logprobs(told[rank - 1], rank, tuple(top), tuple(told[: len(top)]))
