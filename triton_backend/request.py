"""What a client asks and what it hears back: frozen nouns, checked when they are made.

They know nothing of blocks, steps or models: whether a request fits an engine is decided at submit
(`admission.py`). Prompts, stop strings and answers are left out of every `repr` and every message.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from builder.errors import RequestError

GREEDY_BELOW = 1e-3
"""A temperature below this is greedy: logits one hundredth apart differ 20,000-fold in probability."""
MAX_TEMPERATURE = 100.0
MAX_INT32 = 2**31 - 1
MAX_STOP_TOKEN_IDS = 256
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1024
MAX_REQUEST_ID_CHARACTERS = 256
MAX_LOGPROBS = 20


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
    logprobs: int | None = None
    """Tell the log-probability of each token, and of so many of the likeliest; None tells nothing."""

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, MAX_TEMPERATURE)
        _check_integer("top_k", self.top_k, 0, MAX_INT32)
        _check_number("top_p", self.top_p, 1.0)
        if self.seed is not None:
            _check_integer("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, 1, MAX_INT32)
        _check_integer("min_tokens", self.min_tokens, 0, MAX_INT32)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}); got {self.min_tokens}."
            )
        _check_stop_token_ids(self.stop_token_ids)
        _check_stop_strings(self.stop)
        if type(self.ignore_eos) is not bool:
            raise RequestError(f"ignore_eos must be true or false; got {_shown(self.ignore_eos)}.")
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)

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

    def __post_init__(self) -> None:
        if not isinstance(self.request_id, str) or not (
            1 <= len(self.request_id) <= MAX_REQUEST_ID_CHARACTERS
        ):
            raise RequestError(
                f"request_id must be a string of 1 to {MAX_REQUEST_ID_CHARACTERS} characters;"
                f" got {_shown(self.request_id)}."
            )
        _check_type("prompt_token_ids", self.prompt_token_ids, tuple)
        for kind in set(map(type, self.prompt_token_ids)) - {int}:
            raise RequestError(f"prompt_token_ids must hold integers only; got a {kind.__name__}.")
        _check_type("params", self.params, SamplingParams)


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """An end id, a stop token id or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the engine's `max_seq_len` was reached."""
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely one token of an answer was: at temperature 1, before bans and cuts."""

    logprob: float
    """Natural logarithm of its probability; minus infinity or NaN where the logits say so."""
    rank: int
    """Its place among all tokens, 1 for the likeliest; of equals, the lower id comes first."""
    top_ids: tuple[int, ...] = field(repr=False)
    """The likeliest tokens, as many as the request asked for (or all there are), likeliest first."""
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """News about one request after a step. The last one, and only that, has a `finish_reason`."""

    request_id: str
    token_ids: tuple[int, ...] = field(repr=False)
    """New tokens. An id that ended the answer is among them; its text is not in `text`."""
    text: str = field(repr=False)
    """New text; always empty in an engine without a text stage."""
    finish_reason: FinishReason | None
    stop_reason: int | str | None = field(repr=False)
    """The token id or the stop string that ended the answer."""
    num_prompt_tokens: int
    num_generated_tokens: int
    """Tokens of the answer so far, those of this delta included."""
    error: str | None = None
    """One line for people when `finish_reason` is `error`."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per new token where the request asks for them, none otherwise."""


def _check_number(name: str, value: object, high: float) -> None:
    # Not "value < 0 or value > high": that would let NaN through.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise RequestError(f"{name} must be a number from 0 to {high:g}; got {_shown(value)}.")


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise RequestError(f"{name} must be an integer from {low} to {high}; got {_shown(value)}.")


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise RequestError(f"{name} must be a {kind.__name__}; got {_shown(value)}.")


def _check_stop_token_ids(ids: tuple[int, ...]) -> None:
    _check_type("stop_token_ids", ids, tuple)
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise RequestError(
            f"stop_token_ids must hold at most {MAX_STOP_TOKEN_IDS} ids; got {len(ids)}."
        )
    for index, token_id in enumerate(ids):
        _check_integer(f"stop_token_ids[{index}]", token_id, 0, MAX_INT32)


def _check_stop_strings(stop: tuple[str, ...]) -> None:
    _check_type("stop", stop, tuple)
    if len(stop) > MAX_STOP_STRINGS:
        raise RequestError(f"stop must hold at most {MAX_STOP_STRINGS} strings; got {len(stop)}.")
    for index, text in enumerate(stop):
        _check_type(f"stop[{index}]", text, str)
        if not 1 <= len(text) <= MAX_STOP_CHARACTERS:
            raise RequestError(
                f"stop[{index}] must have 1 to {MAX_STOP_CHARACTERS} characters; got {len(text)}."
            )


def _shown(value: object) -> str:
    """Describe a refused value: numbers by value, anything that may hold text by type and size."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        # Python refuses to print integers of more than 4,300 digits.
        bits = value.bit_length()
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if isinstance(value, str):
        return f"a str of {len(value)} characters"
    return f"a {type(value).__name__}"
