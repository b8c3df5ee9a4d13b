"""Masks by llguidance: a parser of the constraint walks the vocabulary as a tree of bytes.

Where the constraint leaves one way to go on, the mask allows that text in the model's own tokens alone.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from threading import Lock

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from builder.artifact.step import Float32
from builder.errors import EngineError, RequestError
from triton_backend.constraint import Constraint
from triton_backend.structured.mask import AnswerMask
from triton_backend.structured.trial import TOO_LARGE, limits, tried

MAX_CHARACTERS = 2**16
MAX_COMPILED = 16
"""Compiled constraints kept, the last ones asked for."""
Bool = NDArray[np.bool_]


class GuidanceMask:
    """The mask of one answer. The ids that end answers are known here, not to the parser."""

    def __init__(
        self, matcher: LLMatcher, stopping_ids: Collection[int], *, vocab_size: int
    ) -> None:
        """Begin; `matcher` is the answer's own."""
        self._matcher = matcher
        self._stopping_ids = frozenset(stopping_ids)
        self._vocab_size = vocab_size
        self._allowed: Bool | None = None
        """`[V]` of the present place; computed when it is first asked for."""

    @property
    def is_complete(self) -> bool:
        """See `AnswerMask`."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def keeps(self, token_id: int) -> bool:
        """See `AnswerMask`."""
        return bool(self._allowed_now()[token_id])

    def apply(self, logits: Float32) -> None:
        """See `AnswerMask`."""
        np.copyto(logits, np.float32(-np.inf), where=~self._allowed_now())

    def accept(self, token_id: int) -> None:
        """See `AnswerMask`."""
        if token_id in self._stopping_ids and not self._matcher.is_error():
            return
        self._allowed = None
        if not self._matcher.consume_token(token_id):
            raise EngineError("the constraint became too complex to follow, or was not followed")

    def _allowed_now(self) -> Bool:
        if self._allowed is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            unpacked = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
            self._allowed = unpacked.view(np.bool_)
            if self._matcher.is_error():
                # A limit was met. Let anything pass: `accept` ends this answer with an error, and no other.
                self._allowed[:] = True
            elif self._matcher.is_accepting():
                self._allowed[list(self._stopping_ids)] = True
        return self._allowed


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
        self._compiled: OrderedDict[Constraint, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def prepare(self, constraint: Constraint) -> None:
        """Compile a constraint ahead of `start`: at worst a second, better spent on another thread.

        Raises:
            RequestError: as `start` does.
        """
        self._matcher(constraint)

    def start(self, constraint: Constraint, stopping_ids: Collection[int]) -> AnswerMask:
        """See `MaskProvider`."""
        matcher = self._matcher(constraint).deep_copy()
        return GuidanceMask(matcher, stopping_ids, vocab_size=self._vocab_size)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        """The vocabulary as a tree; made for the first constraint, as it takes 0.2 s and few engines meet one."""
        tokenizer = LLTokenizer(self._vocabulary, n_vocab=self._vocab_size + 1)  # type: ignore[arg-type]
        self._vocabulary.greedy = tokenizer.greedy_tokenize
        return tokenizer

    def _matcher(self, constraint: Constraint) -> LLMatcher:
        """Give the compiled constraint, whose state is never moved."""
        with self._lock:
            if constraint in self._compiled:
                self._compiled.move_to_end(constraint)
                return self._compiled[constraint]
        if len(constraint.text) > MAX_CHARACTERS:
            raise RequestError(
                f"constraint.text must have at most {MAX_CHARACTERS} characters;"
                f" got {len(constraint.text)}."
            )
        grammar = self._trial(constraint)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise TOO_LARGE
        with self._lock:
            self._compiled[constraint] = matcher
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        return matcher


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
