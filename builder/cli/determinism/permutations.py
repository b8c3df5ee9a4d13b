"""The ways in which the same requests are served, each compared with every request served alone.

A way that did not come about (nobody was preempted, nothing was reused) is told as such: it proves nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from builder.cli.determinism.cases import with_choices
from builder.cli.determinism.narrowed import Narrowed
from builder.cli.determinism.serving import Answer, Key, first_difference, serve
from builder.targets.executor import Executor
from triton_backend.answers import Answers
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.request import Request
from triton_backend.tokenizer import Tokenizer

NUM_CHOICES = 3
CHUNK_TOKENS = 7
"""Divides no block size, so chunks begin and end anywhere in blocks."""
FULL_AT = 3
"""Prompts that fill a pool. Where it takes many, the first are answered before the last are computed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one way went."""

    name: str
    num_answers: int
    num_tokens: int
    evidence: str
    """What came about, counted."""
    is_exercised: bool
    """Whether it came about at all."""
    differences: tuple[str, ...]
    """Which answers differ, and where."""


@dataclass(frozen=True)
class Proof:
    """The requests, what they get when served alone, and what is needed to serve them otherwise."""

    executor: Executor
    tokenizer: Tokenizer
    end_token_ids: Iterable[int]
    cases: list[Request]
    alone: dict[Key, Answer] = field(init=False, default_factory=dict)

    def serve_alone(self) -> None:
        """Serve each request alone, in an engine of its own that reuses and drafts nothing."""
        self.alone.update(self.each_alone(self.cases))

    @property
    def cases_with_choices(self) -> list[Request]:
        """The requests, each asking for several choices."""
        return [with_choices(case, NUM_CHOICES) for case in self.cases]

    @cached_property
    def choices_alone(self) -> dict[Key, Answer]:
        """What those get when served alone; the first choice is the answer without choices."""
        return self.each_alone(self.cases_with_choices) | self.alone

    def each_alone(self, cases: Iterable[Request]) -> dict[Key, Answer]:
        """Give what each of `cases` gets alone."""
        answers: dict[Key, Answer] = {}
        for case in cases:
            answers |= serve(self.engine(), [case])
        return answers

    @property
    def num_at_once(self) -> int:
        """Requests that one step has room for; 0 where each is alone in it."""
        most = min(len(self.cases), self.executor.limits.max_num_seqs)
        return most if most > 1 else 0

    def engine(
        self,
        executor: Executor | None = None,
        *,
        prefix_reuse: bool = False,
        speculation: bool = False,
    ) -> Engine:
        """Make an engine over the artifact's executor, or over a narrower view of it."""
        ends = frozenset(self.end_token_ids)
        return Engine(
            executor or self.executor,
            end_token_ids=ends,
            text_stage=Answers(self.tokenizer, ends),
            config=EngineConfig(prefix_reuse=prefix_reuse, speculation=speculation),
        )

    def tight_pool(self, count: int, **limits: int) -> Narrowed:
        """Give a view whose pool holds the prompts of the first `count` requests, and not their answers too.

        It always holds the largest request alone.
        """
        size = self.executor.kv.block_size
        prompts = [-(-len(case.prompt_token_ids) // size) for case in self.cases]
        whole = [
            -(-(len(case.prompt_token_ids) + (case.params.max_tokens or 0)) // size)
            for case in self.cases
        ]
        # One block is reserved, and one is kept free when requests are admitted beside others.
        num_blocks = 2 + max(sum(prompts[:count]), *whole)
        return Narrowed(self.executor, num_blocks=num_blocks, **limits)

    def outcome(self, name: str, answers: Mapping[Key, Answer], count: int, what: str) -> Outcome:
        """Compare `answers` with those given alone; `count` times `what` came about."""
        return outcome_of(name, self.alone, answers, evidence=(count, what))


def outcome_of(
    name: str,
    expected: Mapping[Key, Answer],
    answers: Mapping[Key, Answer],
    *,
    evidence: tuple[int, str],
) -> Outcome:
    """Compare answers with those expected; whatever is missing differs too."""
    differences = []
    for key, answer in expected.items():
        found = first_difference(answer, answers[key]) if key in answers else "no answer"
        if found:
            differences.append(f"prompt {int(key[0]) + 1} choice {key[1]}: {found}")
    count, what = evidence
    return Outcome(
        name=name,
        num_answers=len(expected),
        num_tokens=sum(len(answer.token_ids) for answer in expected.values()),
        evidence=f"{count} {what}",
        is_exercised=count > 0,
        differences=tuple(differences),
    )


def alone_again(proof: Proof) -> Outcome:
    answers = proof.each_alone(proof.cases)
    return proof.outcome("alone, again", answers, len(answers), "answers")


def together(proof: Proof) -> Outcome:
    answers = serve(proof.engine(), proof.cases)
    return proof.outcome("together", answers, proof.num_at_once, "requests at once")


def reversed_order(proof: Proof) -> Outcome:
    answers = serve(proof.engine(), proof.cases[::-1])
    return proof.outcome("together, last first", answers, proof.num_at_once, "requests at once")


def joining(proof: Proof) -> Outcome:
    answers = serve(proof.engine(), proof.cases, stagger=3)
    joined = len(proof.cases) - 1 if proof.num_at_once else 0
    return proof.outcome("joining in flight", answers, joined, "joined others")


def chunked(proof: Proof) -> Outcome:
    narrowed = Narrowed(proof.executor, max_num_tokens=CHUNK_TOKENS)
    answers = serve(proof.engine(narrowed), proof.cases)
    cut = sum(len(case.prompt_token_ids) > CHUNK_TOKENS for case in proof.cases)
    return proof.outcome("in chunks", answers, cut, f"prompts cut at {CHUNK_TOKENS} tokens a step")


def reused(proof: Proof) -> Outcome:
    """Serve all, then the same again from the cache; a hit on part of a block is copied."""
    engine = proof.engine(prefix_reuse=True)
    first = serve(engine, proof.cases)
    again = serve(engine, proof.cases)
    cached = sum(answer.num_cached_tokens for answer in again.values())
    cold = proof.outcome("after a cache hit", first, cached, "tokens reused")
    warm = proof.outcome("after a cache hit", again, cached, "tokens reused")
    return warm if warm.differences else cold


def preempted(proof: Proof) -> Outcome:
    engine = proof.engine(proof.tight_pool(FULL_AT))
    answers = serve(engine, proof.cases)
    return proof.outcome("preempted", answers, engine.metrics.num_preemptions, "preemptions")


def choices(proof: Proof) -> Outcome:
    answers = serve(proof.engine(), proof.cases_with_choices)
    evidence = NUM_CHOICES, "choices each"
    return outcome_of("n choices", proof.choices_alone, answers, evidence=evidence)


def speculated(proof: Proof) -> Outcome:
    engine = proof.engine(speculation=True)
    answers = serve(engine, proof.cases)
    return proof.outcome(
        "speculated", answers, engine.metrics.num_accepted_tokens, "drafts accepted"
    )


def streamed(proof: Proof) -> Outcome:
    """Compare the text that came token by token with the text of all tokens at once."""
    differences, engine = [], proof.engine()
    for case in proof.cases:
        stage = Answers(proof.tokenizer, proof.end_token_ids)
        answer_id = (case.request_id, 0)
        answer = proof.alone[answer_id]
        stage.start(answer_id, engine.prepare(case))
        text, _ = stage.extend(answer_id, answer.token_ids)
        if text + stage.finish(answer_id) != answer.text:
            differences.append(f"prompt {int(case.request_id) + 1} choice 0: text")
    tokens = sum(len(answer.token_ids) for answer in proof.alone.values())
    return Outcome(
        name="streamed",
        num_answers=len(proof.cases),
        num_tokens=tokens,
        evidence=f"{tokens} tokens one by one",
        is_exercised=tokens > 0,
        differences=tuple(differences),
    )


def all_of_it(proof: Proof) -> Outcome:
    """Serve twice in one engine: reuse, drafts, choices, chunks, a full pool, joining in flight.

    Choices share a prompt and grow apart, which fills the pool when all of them run.
    """
    executor = proof.tight_pool(0, max_num_tokens=CHUNK_TOKENS * 3)
    engine = proof.engine(executor, prefix_reuse=True, speculation=True)
    cases = proof.cases_with_choices
    first = serve(engine, cases, stagger=2)
    again = serve(engine, cases[::-1], stagger=2)
    evidence = engine.metrics.num_preemptions, "preemptions"
    cold = outcome_of("all of it", proof.choices_alone, first, evidence=evidence)
    warm = outcome_of("all of it", proof.choices_alone, again, evidence=evidence)
    return warm if warm.differences else cold


PERMUTATIONS: tuple[Callable[[Proof], Outcome], ...] = (
    alone_again,
    together,
    reversed_order,
    joining,
    chunked,
    reused,
    preempted,
    choices,
    speculated,
    streamed,
    all_of_it,
)
"""In the order of the table."""
