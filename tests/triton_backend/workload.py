"""Random workloads for the scripted engine: what is asked, on what, and what befalls it.

Drawing takes the program as an argument, so that the seeded bugs can hand in a broken one; nothing is
imported from it. The same number always gives the same workload.
"""

import hashlib
import random
import struct
from dataclasses import dataclass, field
from typing import Any

from builder.artifact.config import Limits
from tests.triton_backend.oracle import Model

POLICIES = ("fcfs", "priority", "srpt", "fair", "longest_prefix")
DOMAINS = (b"", b"", b"", b"one", b"other", None)


@dataclass(frozen=True)
class Workload:
    """What is served, on what, and what befalls it."""

    limits: Limits
    block_size: int
    model: Model
    settings: dict[str, Any]
    """Fields of the engine's configuration."""
    arrivals: dict[int, list[Any]]
    """Requests by the step before which they are submitted."""
    cancels: dict[int, list[str]]
    erasures: dict[int, bytes]
    """Domains whose cached blocks are erased, by the step before it."""
    failures: frozenset[int]
    """Steps in which the executor fails."""
    common: tuple[int, ...] = ()
    """A beginning of prompts that all domains share."""


def draw_workload(program: Any, number: int) -> Workload:
    """Draw workload `number`: always the same."""
    rng = random.Random(number)  # noqa: S311
    is_tight = rng.random() < 0.5
    block_size = rng.choice([1, 2, 3]) if is_tight else rng.choice([1, 2, 3, 4, 8])
    num_blocks = rng.randint(8, 14) if is_tight else rng.choice([8, 16, 40, 80, 200, 200])
    limits = Limits(
        max_seq_len=min(rng.randint(8, 48), (num_blocks - 1) * block_size + rng.randint(-2, 4)),
        max_num_seqs=rng.randint(1, 8),
        max_num_tokens=rng.choice([1, 2, 3, 5, 8, 16, 32]),
        max_logit_rows=rng.choice([1, 2, 4, 8, 8]),
        num_blocks=num_blocks,
    )
    vocab_size = rng.choice([5, 70, 100])
    end_ids = frozenset(rng.sample(range(vocab_size), rng.randint(0, 2)))
    settings = draw_settings(rng)
    common = beginning(0, rng.choice([0, 0, 1, 4, 9]), vocab_size)
    if common:
        digest = hashlib.sha256(struct.pack(f"<{len(common)}i", *common)).hexdigest()
        settings["common_prefixes"] = ((len(common), digest),)
    asks = Asks(program, rng, limits, block_size, vocab_size)
    arrivals: dict[int, list[Any]] = {}
    cancels: dict[int, list[str]] = {}
    for index in range(rng.randint(1, 12)):
        step = rng.choice([0, 0, rng.randint(0, 20)])
        request = asks.draw(f"r{index}", step)
        arrivals.setdefault(step, []).append(request)
        if rng.random() < 0.15:
            cancels.setdefault(step + rng.randint(0, 12), []).append(request.request_id)
    return Workload(
        limits=limits,
        block_size=block_size,
        model=Model(vocab_size, end_ids, num_groups=rng.choice([1, 1, 2])),
        settings=settings,
        arrivals=arrivals,
        cancels=cancels,
        erasures={rng.randint(1, 20): rng.choice([b"", b"one"])} if rng.random() < 0.3 else {},
        failures=frozenset([rng.randint(1, 15)] if rng.random() < 0.15 else []),
        common=common,
    )


def beginning(number: int, num_tokens: int, vocab_size: int) -> tuple[int, ...]:
    """Give the beginning of one of the prompts that many requests begin like."""
    base = random.Random(number)  # noqa: S311
    return tuple(base.randrange(vocab_size) for _ in range(num_tokens))


def draw_settings(rng: random.Random) -> dict[str, Any]:
    """Draw how the engine is set; no setting may change an answer."""
    return {
        "policy": rng.choice(["fcfs", *POLICIES]),
        "watermark": rng.choice([0.01, 0.25]),
        "num_candidates": rng.choice([1, 4, 64]),
        "max_waiting": rng.choice([1024, 1024, 2, 3]),
        "max_waiting_tokens": rng.choice([None, None, 20, 40]),
        "max_chunk_tokens": rng.choice([None, None, 1, 2, 5]),
        "prefix_reuse": rng.random() < 0.8,
        "cache_ttl_s": rng.choice([None, None, None, 4.0]),
        "speculation": rng.random() < 0.6,
        "max_draft_tokens": rng.randint(1, 4),
    }


@dataclass(frozen=True)
class Asks:
    """Draws requests that fit."""

    program: Any
    rng: random.Random
    limits: Limits
    block_size: int
    vocab_size: int
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    """Those drawn so far."""

    def draw(self, request_id: str, step: int) -> Any:
        """Draw a request that arrives before `step`."""
        rng = self.rng
        room = min(self.limits.max_seq_len, (self.limits.num_blocks - 1) * self.block_size + 1)
        num_prompt = rng.choice([1, rng.randint(1, room - 1), rng.randint(1, room - 1)])
        prompt = self.prompt(num_prompt)
        self.prompts.append(prompt)
        return self.program.Request(
            request_id,
            prompt,
            self.params(room - len(prompt), prompt),
            domain=rng.choice(DOMAINS),
            store=rng.random() < 0.85,
            priority=rng.choice([0, 0, -1, 1]),
            tenant=rng.choice(["", "x", "y"]),
            deadline_s=step + rng.randint(0, 30) + 0.5 if rng.random() < 0.15 else None,
        )

    def prompt(self, num_prompt: int) -> tuple[int, ...]:
        """Draw a prompt that begins as others do and goes on alone."""
        rng = self.rng
        if self.prompts and rng.random() < 0.4:
            return rng.choice(self.prompts)
        ids = beginning(rng.randrange(2), num_prompt, self.vocab_size)
        own = rng.choice([num_prompt, rng.randint(0, num_prompt), 0])
        return ids[: num_prompt - own] + tuple(rng.randrange(self.vocab_size) for _ in range(own))

    def params(self, left: int, prompt: tuple[int, ...]) -> Any:
        """Draw parameters of an answer of at most `left` tokens."""
        rng = self.rng
        max_tokens = rng.choice([None, rng.randint(1, left)])
        has_stop = rng.random() < 0.3
        return self.program.SamplingParams(
            temperature=rng.choice([0, 0, 0.5, 1.0, 3.0, 100.0]),
            top_k=rng.choice([0, 0, 1, 2, 3, 6, 69, 99, 1000]),
            top_p=rng.choice([1.0, 1.0, 0.999, 0.9, 0.43, 0.07]),
            seed=rng.choice([None, 0, rng.randint(-(2**63), 2**64 - 1)]),
            max_tokens=max_tokens,
            min_tokens=rng.choice([0, 0, rng.randint(0, max_tokens or left)]),
            stop_token_ids=tuple(rng.sample(range(self.vocab_size), rng.randint(0, 2))),
            stop=tuple(rng.sample(["ab", "c", "ddd", "bca"], rng.randint(1, 3)))
            if has_stop
            else (),
            ignore_eos=rng.random() < 0.2,
            include_stop=rng.random() < 0.2,
            logprobs=rng.choice([None, None, None, 0, 3]),
            prompt_logprobs=rng.choice([None] * 8 + [0, 2]),
            num_choices=rng.choice([1, 1, 1, 1, 2, 3]),
            speculation=rng.choice([None, None, True, False]),
            **self.edits(prompt),
        )

    def edits(self, prompt: tuple[int, ...]) -> dict[str, Any]:
        """Draw fields that change logits: in steps that float32 holds exactly, so that order is no matter."""
        rng, given = self.rng, {}
        ids: list[int] = []
        if rng.random() < 0.35:
            # Large enough that few ids are left: their answers repeat, and drafts are accepted.
            ids = rng.sample(range(self.vocab_size), rng.randint(1, 3))
            given["logit_bias"] = tuple(
                (each, rng.choice([-99.0, 0.5, 60.0, 60.0])) for each in ids
            )
        elif self.vocab_size > 5 and rng.random() < 0.15:
            # Bans (-100), or negative logits, for every other id.
            bias = rng.choice([-100.0, -20.0])
            given["logit_bias"] = tuple((each, bias) for each in range(0, self.vocab_size, 2))
        if rng.random() < 0.25:
            given["repetition_penalty"] = rng.choice([0.5, 2.0])
        if rng.random() < 0.25:
            given["presence_penalty"] = rng.choice([-1.5, 0.25, 2.0])
        if rng.random() < 0.25:
            given["frequency_penalty"] = rng.choice([-0.5, 0.25, 2.0])
        if rng.random() < 0.2:
            given["min_p"] = rng.choice([0.01, 0.2, 0.7, 1.0])
        if self.vocab_size > 5 and rng.random() < 0.2:
            # Of ids that are likely: never in the small vocabulary, where bans could leave nothing.
            likely = [prompt[-1], *ids, *ids]
            given["bad_words"] = tuple(
                tuple(rng.choice(likely) for _ in range(rng.randint(1, 3)))
                for _ in range(rng.randint(1, 4))
            )
        if self.vocab_size > 5 and rng.random() < 0.1:
            given["constraint"] = self.program.constrain(3, rng.randint(0, 5))
        return given
