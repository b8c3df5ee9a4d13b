"""What a client asks and what it hears back: frozen nouns, checked when they are made.

They know nothing of blocks, steps or models: whether a request fits an engine is decided at submit
(`admission.py`). Prompts, stop strings and answers are left out of every `repr` and every message.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from builder.errors import RequestError
from triton_backend.constraint import Constraint
from triton_backend.field_checks import (
    MAX_INT32,
    check_bias,
    check_bool,
    check_count,
    check_ids,
    check_integer,
    check_number,
    check_strings,
    check_type,
    shown,
)
from triton_backend.groundwork import Groundwork

GREEDY_BELOW = 1e-3
"""A temperature below this is greedy: logits one hundredth apart differ 20,000-fold in probability."""
MAX_TEMPERATURE = 100.0
MAX_STOP_TOKEN_IDS = 256
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1024
MAX_ALL_STOP_CHARACTERS = 4096
"""Of all stop strings of a request together: a tree of them takes 10 ms and 2 MB."""
MAX_REQUEST_ID_CHARACTERS = 256
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_LOGIT_BIASES = 1024
MAX_BIAS = 100.0
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 10.0
MAX_PROCESSORS = 8
MAX_PROCESSOR_CHARACTERS = 128
MAX_PRIORITY = 2**31 - 1
MAX_DOMAIN_BYTES = 64


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an answer is drawn and when it ends.

    Raises:
        RequestError: a value is out of bounds or of a wrong type; the message names the parameter.
    """

    temperature: float = 1.0
    """Logits are divided by it; 0 (or anything below `GREEDY_BELOW`) takes the largest logit."""
    top_k: int = 0
    """Draw among the k most likely tokens; 0 is off."""
    top_p: float = 1.0
    """Draw among the fewest most likely tokens that hold this share of probability; 1 is off."""
    seed: int | None = None
    """Names the stream of random numbers; None takes a fresh one."""
    max_tokens: int | None = None
    """Tokens of the answer; None means up to the engine's limit, with memory taken on demand."""
    min_tokens: int = 0
    """Nothing may end the answer before it has this many tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the answer, besides the artifact's end ids."""
    stop: tuple[str, ...] = field(default=(), repr=False)
    """Strings that end the answer when its text contains one."""
    ignore_eos: bool = False
    """The artifact's end ids do not end the answer."""
    include_stop: bool = False
    """The stop string, or the text of the stop token id, is part of the answer's text."""
    logprobs: int | None = None
    """Tell the log-probability of each token, and of so many of the likeliest; None tells nothing."""
    prompt_logprobs: int | None = None
    """The same for each prompt token but the first; such a prompt is computed whole, whatever is cached."""
    min_p: float = 0.0
    """Draw only among tokens at least this many times as likely as the likeliest; 0 is off."""
    repetition_penalty: float = 1.0
    """Positive logits of ids in prompt or answer are divided by it, negative ones multiplied; 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of ids that the answer has; the prompt does not count."""
    frequency_penalty: float = 0.0
    """Subtracted once per occurrence of an id in the answer; the prompt does not count."""
    logit_bias: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    """(id, bias) added to logits before anything else, also for greedy answers; -100 bans an id."""
    bad_words: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """Runs of ids that the answer may not contain: the last id of one is banned after the others."""
    logits_processors: tuple[str, ...] = ()
    """Names of installed processors of the entry-point group `forerun.logits_processors`, run in order."""
    constraint: Constraint | None = None
    """What the answer must conform to."""
    num_choices: int = 1
    """Answers to the same prompt (n): each is drawn from a stream of its own, and they share its blocks."""
    speculation: bool | None = None
    """Draft tokens by prompt lookup; None is as the engine is set. It never changes an answer."""

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, 0, MAX_TEMPERATURE)
        check_number("top_p", self.top_p, 0, 1)
        check_number("min_p", self.min_p, 0, 1)
        # Not 0: it would be divided by.
        check_number("repetition_penalty", self.repetition_penalty, 0.01, MAX_REPETITION_PENALTY)
        for name in ("presence_penalty", "frequency_penalty"):
            check_number(name, getattr(self, name), -MAX_PENALTY, MAX_PENALTY)
        check_integer("top_k", self.top_k, 0, MAX_INT32)
        check_integer("min_tokens", self.min_tokens, 0, MAX_INT32)
        check_integer("num_choices", self.num_choices, 1, MAX_CHOICES)
        for name, low, high in _OPTIONAL_INTEGERS:
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), low, high)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}); got {self.min_tokens}."
            )
        for name in ("ignore_eos", "include_stop"):
            check_bool(name, getattr(self, name))
        if self.speculation is not None:
            check_bool("speculation", self.speculation)
        if self.constraint is not None:
            check_type("constraint", self.constraint, Constraint)
        _check_lists(self)

    @property
    def is_penalised(self) -> bool:
        """Whether ids that occurred are likelier or less likely for it."""
        return self.repetition_penalty != 1.0 or bool(
            self.presence_penalty or self.frequency_penalty
        )

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit is taken, so that no random number is drawn."""
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue.

    Raises:
        RequestError: the id, the prompt or the parameters are of a wrong type.
    """

    request_id: str
    """Names the request in every delta; unique among the requests an engine holds."""
    prompt_token_ids: tuple[int, ...] = field(repr=False)
    params: SamplingParams = field(default_factory=SamplingParams)
    domain: bytes | None = field(default=b"", repr=False)
    """Whose cached blocks it may use and add to; None uses and leaves none. The server's to choose, never a client's."""
    store: bool = True
    """Whether its blocks may be reused by later requests of its domain."""
    priority: int = 0
    """Under the policy `priority`, lower goes first."""
    tenant: str = field(default="", repr=False)
    """Who shares with whom under the policy `fair`."""
    deadline_s: float | None = None
    """Time on the engine's clock at which the answer ends, done or not; None gives it all the time it needs."""
    groundwork: Groundwork | None = field(default=None, repr=False, compare=False)
    """Made of it by `Engine.prepare`, so that submit need not; None where nobody did."""

    def __post_init__(self) -> None:
        if not isinstance(self.request_id, str) or not (
            1 <= len(self.request_id) <= MAX_REQUEST_ID_CHARACTERS
        ):
            raise RequestError(
                f"request_id must be a string of 1 to {MAX_REQUEST_ID_CHARACTERS} characters;"
                f" got {shown(self.request_id)}."
            )
        check_type("prompt_token_ids", self.prompt_token_ids, tuple)
        for kind in set(map(type, self.prompt_token_ids)) - {int}:
            raise RequestError(f"prompt_token_ids must hold integers only; got a {kind.__name__}.")
        check_type("params", self.params, SamplingParams)
        if self.domain is not None:
            check_type("domain", self.domain, bytes)
            if len(self.domain) > MAX_DOMAIN_BYTES:
                raise RequestError(f"domain must have at most {MAX_DOMAIN_BYTES} bytes.")
        check_bool("store", self.store)
        check_integer("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        check_type("tenant", self.tenant, str)
        if self.deadline_s is not None:
            check_number("deadline_s", self.deadline_s, 0, 1e18)


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """An end id, a stop token id or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the engine's `max_seq_len` was reached."""
    CANCELLED = "cancelled"
    INVALID = "invalid"
    """What it asks for leaves no token to go on with, or became too complex to follow."""
    TIMEOUT = "timeout"
    """Its deadline passed, waiting or running."""
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely one token of a prompt or an answer was: at temperature 1, before bans and cuts."""

    logprob: float
    """Natural logarithm of its probability; minus infinity or NaN where the logits say so."""
    rank: int
    """Its place among all tokens, 1 for the likeliest; of equals, the lower id comes first."""
    top_ids: tuple[int, ...] = field(repr=False)
    """The likeliest tokens, as many as the request asked for (or all there are), likeliest first."""
    top_logprobs: tuple[float, ...]


class Delta(NamedTuple):
    """News about one choice of a request after a step. Its last one, and only that, has a `finish_reason`.

    A tuple: of all that is frozen it is made fastest, and a step makes one for each answer.
    """

    request_id: str
    token_ids: tuple[int, ...]
    """New tokens. An id that ended the answer is among them; its text is not in `text`."""
    text: str
    """New text; always empty in an engine without a text stage."""
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    """The token id or the stop string that ended the answer."""
    num_prompt_tokens: int
    num_generated_tokens: int
    """Tokens of the answer so far, those of this delta included."""
    error: str | None = None
    """One line for people when `finish_reason` is `error`."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per new token where the request asks for them, none otherwise."""
    choice: int = 0
    """Which of the request's answers this is about, from 0."""
    is_last: bool = False
    """The last delta of the last choice: the request is over."""
    num_cached_tokens: int = 0
    """Tokens of the prompt whose KV was reused when it was first admitted."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """One per prompt token but the first, if asked for: in the first delta of choice 0, and only there."""
    prompt_token_ids: tuple[int, ...] = ()
    """The prompt itself, in the delta that tells its log-probabilities."""

    def __repr__(self) -> str:
        """Show all but what quotes the prompt or the answer."""
        shown = self._asdict()
        for name in ("token_ids", "text", "stop_reason", "prompt_token_ids"):
            del shown[name]
        return f"Delta({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_OPTIONAL_INTEGERS = (
    ("seed", -(2**63), 2**64 - 1),
    ("max_tokens", 1, MAX_INT32),
    ("logprobs", 0, MAX_LOGPROBS),
    ("prompt_logprobs", 0, MAX_LOGPROBS),
)


def _check_lists(params: SamplingParams) -> None:
    """Check the fields that hold several values each.

    Raises:
        RequestError: names the field and the place in it.
    """
    check_count("stop_token_ids", params.stop_token_ids, MAX_STOP_TOKEN_IDS, "ids")
    for index, token_id in enumerate(params.stop_token_ids):
        check_integer(f"stop_token_ids[{index}]", token_id, 0, MAX_INT32)
    check_strings(
        "stop", params.stop, max_count=MAX_STOP_STRINGS, max_characters=MAX_STOP_CHARACTERS
    )
    if (num_all := sum(map(len, params.stop))) > MAX_ALL_STOP_CHARACTERS:
        raise RequestError(
            f"stop must have at most {MAX_ALL_STOP_CHARACTERS} characters in all; got {num_all}."
        )
    check_count("logit_bias", params.logit_bias, MAX_LOGIT_BIASES, "pairs")
    for index, pair in enumerate(params.logit_bias):
        check_bias(f"logit_bias[{index}]", pair, most=MAX_BIAS)
    if len({token_id for token_id, _ in params.logit_bias}) < len(params.logit_bias):
        raise RequestError("logit_bias must name each id once.")
    check_count("bad_words", params.bad_words, MAX_BAD_WORDS, "words")
    for index, word in enumerate(params.bad_words):
        check_ids(f"bad_words[{index}]", word, max_count=MAX_BAD_WORD_TOKENS)
    check_strings(
        "logits_processors",
        params.logits_processors,
        max_count=MAX_PROCESSORS,
        max_characters=MAX_PROCESSOR_CHARACTERS,
    )
