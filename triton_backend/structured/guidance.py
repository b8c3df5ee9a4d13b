"""Masks by llguidance: a parser of the constraint walks the vocabulary as a tree of bytes.

Where the constraint leaves one way to go on, the mask allows that text in the model's own tokens alone.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from builder.artifact.step import Float32
from builder.errors import EngineError, RequestError, UnavailableError
from triton_backend.constraint import Constraint
from triton_backend.structured.mask import AnswerMask
from triton_backend.structured.trial import TOO_COMPLEX, limits, tried
from triton_backend.structured.verdicts import Verdicts

NUM_THREADS = 4
"""They compute masks while the engine runs its step: llguidance needs no lock of Python's for it."""
BYTES_OF_GUIDE = 64 * 1024
BYTES_PER_CHARACTER = 32
"""Of a grammar. Measured: 0.04 MB for 100 characters, 0.18 for 7,600, 0.96 for 39,000."""
Bool = NDArray[np.bool_]


class Allowed(NamedTuple):
    """What may come next by a parser, which knows no ids that end answers."""

    ids: Bool
    """`[V]`"""
    may_end: bool


class GuidanceMask:
    """The mask of one answer. The ids that end answers are known here, not to the parser."""

    def __init__(
        self,
        matcher: LLMatcher,
        first: Allowed,
        stopping_ids: Collection[int],
        *,
        threads: Executor,
    ) -> None:
        """Begin; `matcher` is the answer's own, and allows `first` now."""
        self._matcher = matcher
        self._stopping_ids = frozenset(stopping_ids)
        self._vocab_size = len(first.ids)
        self._threads = threads
        self._computing: Future[Allowed] | None = None
        """Has the matcher until it is done."""
        self._ids: Bool | None = None
        """`[V]` allowed at the present place, ids that end the answer included; None until it was asked for."""
        self._is_over = False
        """Nothing can follow at the present place, as far as it was asked for."""
        self._take(first)

    @property
    def is_complete(self) -> bool:
        """See `AnswerMask`."""
        self._settle()
        return self._is_over or (self._matcher.is_stopped() and not self._matcher.is_error())

    def begin(self) -> None:
        """See `AnswerMask`."""
        if self._ids is None and self._computing is None:
            self._computing = self._threads.submit(allowed_by, self._matcher, self._vocab_size)

    def keeps(self, token_id: int) -> bool:
        """See `AnswerMask`."""
        return bool(self._allowed_now()[token_id])

    def apply(self, logits: Float32) -> None:
        """See `AnswerMask`."""
        np.copyto(logits, np.float32(-np.inf), where=~self._allowed_now())

    def accept(self, token_id: int) -> None:
        """See `AnswerMask`."""
        is_allowed = self.keeps(token_id)
        if token_id in self._stopping_ids and not self._matcher.is_error():
            return
        self._ids, self._is_over = None, False
        if self._matcher.consume_token(token_id):
            return
        if is_allowed:
            raise RequestError(TOO_COMPLEX)
        raise EngineError("the constraint was not followed")

    def _allowed_now(self) -> Bool:
        self._settle()
        if self._ids is None:
            self._ids = self._take(allowed_by(self._matcher, self._vocab_size))
        return self._ids

    def _settle(self) -> None:
        """Take what another thread computes, if one does."""
        if self._computing is not None:
            computing, self._computing = self._computing, None
            self._take(computing.result())

    def _take(self, allowed: Allowed) -> Bool:
        self._is_over = allowed.may_end and not allowed.ids.any()
        self._ids = allowed.ids
        if allowed.may_end:
            self._ids = allowed.ids.copy()
            self._ids[list(self._stopping_ids)] = True
        return self._ids


def allowed_by(matcher: LLMatcher, vocab_size: int) -> Allowed:
    """Compute what a matcher allows next, on any thread, while nobody else uses the matcher."""
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    ids = np.unpackbits(bits, count=vocab_size, bitorder="little").view(np.bool_)
    if matcher.is_error():
        # A limit was met. Let anything pass: `accept` ends this answer as invalid, and no other.
        ids[:] = True
    return Allowed(ids, may_end=matcher.is_error() or matcher.is_accepting())


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """A constraint compiled for one vocabulary (a `CompiledConstraint`)."""

    matcher: LLMatcher
    """Stays where answers begin; each of them gets a copy."""
    first: Allowed
    threads: Executor

    def start(self, stopping_ids: Collection[int]) -> AnswerMask:
        """See `CompiledConstraint`."""
        return GuidanceMask(
            self.matcher.deep_copy(), self.first, stopping_ids, threads=self.threads
        )


class GuidanceProvider:
    """Compiles constraints for one vocabulary; threads may share it."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        encode: Callable[[str], Sequence[int]],
        *,
        trial: Callable[[Constraint], str] = tried,
    ) -> None:
        """Take the text of each of V ids, nothing for those that no text has, and the tokenizer.

        `encode` gives the ids in which the model itself would write a text. `trial` translates a constraint
        that may be hostile, and refuses one that would not compile in time.
        """
        self._trial = trial
        self._vocab_size = len(token_bytes)
        self._vocabulary = _Vocabulary(token_bytes, encode)
        self._verdicts: Verdicts[Guide] = Verdicts()
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="mask")
        self._making_tokenizer = Lock()

    def knows(self, constraint: Constraint) -> bool:
        """Tell whether `compile` has its answer at hand."""
        return self._verdicts.find(constraint) is not None

    def compile(self, constraint: Constraint) -> Guide:
        """See `MaskProvider`."""
        verdict = self._verdicts.find(constraint)
        if verdict is None:
            verdict, num_bytes = self._judge(constraint)
            self._verdicts.keep(constraint, verdict, num_bytes)
        if isinstance(verdict, str):
            raise RequestError(verdict)
        return verdict

    def _judge(self, constraint: Constraint) -> tuple[Guide | str, int]:
        """Compile a constraint, or say why it is refused for good; and how much memory that takes."""
        try:
            grammar = self._trial(constraint)
        except UnavailableError:
            raise
        except RequestError as refused:
            return str(refused), 0
        matcher = LLMatcher(self._tokenizer(), grammar, log_level=0, limits=limits())
        first = allowed_by(matcher, self._vocab_size)
        if matcher.is_error():
            return TOO_COMPLEX, 0
        guide = Guide(matcher, first, self._threads)
        return guide, BYTES_OF_GUIDE + BYTES_PER_CHARACTER * len(grammar) + self._vocab_size

    def _tokenizer(self) -> LLTokenizer:
        """Give the vocabulary as a tree."""
        with self._making_tokenizer:
            return self._tree

    @cached_property
    def _tree(self) -> LLTokenizer:
        """Made for the first constraint, as it takes 0.2 s and few engines meet one."""
        tokenizer = LLTokenizer(self._vocabulary, n_vocab=self._vocab_size + 1)  # type: ignore[arg-type]
        self._vocabulary.greedy = tokenizer.greedy_tokenize
        return tokenizer


class _Vocabulary:
    """A vocabulary as llguidance wants to see it, with one more id than V that ends a text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self, token_bytes: Sequence[bytes], encode: Callable[[str], Sequence[int]]
    ) -> None:
        self.eos_token_id = len(token_bytes)
        self.special_token_ids = [self.eos_token_id]
        self.tokens = [*token_bytes, b"<end>"]
        self._encode = encode
        self.greedy: Callable[[str], list[int]] = lambda text: []  # noqa: ARG005

    def __call__(self, text: str) -> list[int]:
        """Encode a text that must come next. A tokenizer that adds a space would give another text."""
        ids = list(self._encode(text))
        if b"".join(self.tokens[token_id] for token_id in ids) == text.encode():
            return ids
        return self.greedy(text)
