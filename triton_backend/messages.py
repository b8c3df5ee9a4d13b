"""The messages of the link between a front inside Triton and the engine host.

A front says `Join` first and hears `Hello` once the engine is loaded, or `Failed`. Each request it submits
under an id of its own ends exactly once: in a `News` that is the last, or in a `Refused`.
"""

from enum import StrEnum

from msgspec import Struct

from builder.artifact.config import Limits
from triton_backend.request import FinishReason, SamplingParams, TokenLogprobs
from triton_backend.segments import Segment

VERSION = 4
"""Of the messages. Both ends say theirs first; they serve each other only if it is the same."""


class TokenIds(Struct, frozen=True, array_like=True, tag="ids"):
    """A prompt as token ids, taken as they are."""

    token_ids: tuple[int, ...]

    def __repr__(self) -> str:
        """Leave the prompt out."""
        return f"TokenIds({len(self.token_ids)} ids)"


class PlainText(Struct, frozen=True, array_like=True, tag="text"):
    """A prompt as text in which special tokens stay text; the model's own ids go around it."""

    text: str

    def __repr__(self) -> str:
        """Leave the prompt out."""
        return f"PlainText({len(self.text)} characters)"


class ControlText(Struct, frozen=True, array_like=True, tag="control"):
    """A prompt as text in which special tokens that it spells count; otherwise like plain text."""

    text: str

    def __repr__(self) -> str:
        """Leave the prompt out."""
        return f"ControlText({len(self.text)} characters)"


class Segments(Struct, frozen=True, array_like=True, tag="segments"):
    """A prompt as typed segments, taken as they are."""

    segments: tuple[Segment, ...]


Prompt = TokenIds | PlainText | ControlText | Segments


class Join(Struct, frozen=True, array_like=True, tag="join"):
    """A front's first words."""

    version: int
    face: str


class Claim(Struct, frozen=True, array_like=True):
    """Who a request says it comes from; the host believes it if the tag is right (`tenancy.py`)."""

    tenant: str
    expires_s: int
    tag: str

    def __repr__(self) -> str:
        """Leave out what could be sent again."""
        return "Claim()"


class Terms(Struct, frozen=True, array_like=True):
    """What a request says besides its prompt and its sampling parameters."""

    claim: Claim | None = None
    cache_salt: str = ""
    """Requests of one tenant share blocks only with those of the same salt."""
    store: bool = True
    """Whether its blocks may be reused."""
    priority: int = 0
    bad_words: tuple[str, ...] = ()
    """As text; the host knows the ids."""

    def __repr__(self) -> str:
        """Leave out what the client wrote."""
        return "Terms()"


NO_TERMS = Terms()


class Submit(Struct, frozen=True, array_like=True, tag="submit"):
    """Serve a request."""

    id: int
    prompt: Prompt
    params: SamplingParams
    terms: Terms = NO_TERMS
    request_id: str = ""
    """The client's own name of it, which a claim's tag is for."""
    deadline_s: float | None = None
    """When it ends, done or not: on the monotonic clock, which all processes of a machine share."""


class Cancel(Struct, frozen=True, array_like=True, tag="cancel"):
    """End a request now. One that is unknown or over is no mistake: messages cross on the way."""

    id: int


class Ping(Struct, frozen=True, array_like=True, tag="ping"):
    """Answer between two steps; if the answer to the last one is not out yet, say that at once."""


class Leave(Struct, frozen=True, array_like=True, tag="leave"):
    """The front ends in good order: a host without fronts need not wait for its return."""


FromFront = Join | Submit | Cancel | Ping | Leave


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """The engine is loaded."""

    version: int
    digest: str
    """sha256 of the artifact's manifest, which names every other hash."""
    vocab_size: int
    limits: Limits


class Failed(Struct, frozen=True, array_like=True, tag="failed"):
    """The host can't serve, and ends."""

    message: str
    exit_code: int = 1
    """With 2, no other host could either, until somebody changes what was given to it."""


class News(Struct, frozen=True, array_like=True):
    """What one choice of a request got since the last news of it; with a `finish_reason`, its last."""

    id: int
    token_ids: tuple[int, ...]
    text: str
    token_bytes: tuple[bytes, ...]
    """Bytes of each token; those of a character may be spread over several."""
    num_prompt_tokens: int
    num_generated_tokens: int
    """Tokens of the answer so far, these included."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token where the request asks for them."""
    top_bytes: tuple[tuple[bytes, ...], ...] = ()
    """Bytes of the likeliest tokens, in the order of `logprobs`."""
    choice: int = 0
    is_last: bool = False
    """The last choice has finished: the request is over."""
    num_cached_tokens: int = 0
    """Tokens of the prompt that were not computed anew."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """In the first news of choice 0, if asked for: one per token of the prompt but the first."""
    prompt_token_ids: tuple[int, ...] = ()
    """The prompt, in the same news."""
    prompt_token_bytes: tuple[bytes, ...] = ()
    prompt_top_bytes: tuple[tuple[bytes, ...], ...] = ()

    def __repr__(self) -> str:
        """Leave the answer out."""
        return f"News(id={self.id}, {len(self.token_ids)} tokens, {self.finish_reason})"


class Deltas(Struct, frozen=True, array_like=True, tag="deltas"):
    """What one step brought to the requests of one front."""

    news: tuple[News, ...]


class RefusalKind(StrEnum):
    """Why a request is not served."""

    INVALID = "invalid"
    """It can never be served as it stands."""
    UNAVAILABLE = "unavailable"
    """Not now; it may be tried again."""
    INTERNAL = "internal"
    """It was right, and something failed."""


class Refused(Struct, frozen=True, array_like=True, tag="refused"):
    """A request that got no token and ends."""

    id: int
    kind: RefusalKind
    message: str


class Durations(Struct, frozen=True, array_like=True):
    """A histogram of seconds since the start; its bounds are those of `histogram.py`."""

    counts: tuple[int, ...]
    """Values per bucket, the last one without a bound."""
    total: float


class Pong(Struct, frozen=True, array_like=True, tag="pong"):
    """The engine between two steps. What is missing in a dictionary is 0."""

    num_running: int
    num_waiting: int
    num_blocks: int
    """Blocks of the KV pool that requests can hold."""
    num_used_blocks: int
    """Blocks that requests hold."""
    num_cached_blocks: int
    """Blocks that nobody holds, and whose content can be reused."""
    waits_for: str = ""
    """What those who wait wait for."""
    counters: dict[str, int] = {}
    """Since the start, by the attributes of `EngineMetrics`."""
    refused: dict[str, int] = {}
    """Requests refused since the start, by reason."""
    finished: dict[str, int] = {}
    """Answers that are over, by reason."""
    seconds: dict[str, Durations] = {}
    """Histograms, by the attributes of `EngineMetrics`."""


class Busy(Struct, frozen=True, array_like=True, tag="busy"):
    """The engine is in a step that began before an earlier ping; the host as such is well."""

    waited_s: float
    """Since that ping."""


FromHost = Hello | Failed | Deltas | Refused | Pong | Busy


def merged(news: list[News]) -> News:
    """Give one piece of news that tells what several, of one choice and in order, tell."""
    last = news[-1]
    if len(news) == 1:
        return last
    return News(
        id=last.id,
        token_ids=tuple(token_id for each in news for token_id in each.token_ids),
        text="".join(each.text for each in news),
        token_bytes=tuple(data for each in news for data in each.token_bytes),
        num_prompt_tokens=last.num_prompt_tokens,
        num_generated_tokens=last.num_generated_tokens,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        error=last.error,
        logprobs=tuple(told for each in news for told in each.logprobs),
        top_bytes=tuple(told for each in news for told in each.top_bytes),
        choice=last.choice,
        is_last=last.is_last,
        num_cached_tokens=last.num_cached_tokens,
        prompt_logprobs=news[0].prompt_logprobs,
        prompt_token_ids=news[0].prompt_token_ids,
        prompt_token_bytes=news[0].prompt_token_bytes,
        prompt_top_bytes=news[0].prompt_top_bytes,
    )
