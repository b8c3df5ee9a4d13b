"""Our own face: token ids, text or typed segments in; ids, text, bytes, logprobs and usage out.

Every response is about one choice; the last response of a request is the last of its last choice. It has every output
that was wanted; those of log-probabilities only if the request asks for any, and bytes only if the client names the
outputs that it wants. Special tokens that a `text` spells stay text; control tokens come as ids or as `control`
segments. Answers stream unless the request says `stream` false, which Triton's `generate` needs: it refuses a second
response, and only after the whole answer.
"""

import json
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain

from builder.errors import RequestError, unknown_name
from triton_backend.faces.forerun_fields import CLAIM, params_of, terms_of
from triton_backend.messages import News, PlainText, Prompt, Segments, TokenIds
from triton_backend.protocol import (
    TRITONS_OWN,
    Array,
    Ask,
    Face,
    Inputs,
    Parameters,
    Tensor,
    floats,
    integers,
    strings,
)
from triton_backend.request import TokenLogprobs
from triton_backend.segments import MAX_SEGMENTS, Segment, SegmentKind

INPUTS = (
    Tensor("token_ids", "INT32", -1),
    Tensor("text", "STRING", 1),
    Tensor("segments", "STRING", -1),
    Tensor("segment_kinds", "STRING", -1),
    Tensor("max_tokens", "INT32", 1),
    Tensor("min_tokens", "INT32", 1),
    Tensor("temperature", "FP32", 1),
    Tensor("top_k", "INT32", 1),
    Tensor("top_p", "FP32", 1),
    Tensor("seed", "INT64", 1),
    Tensor("stop", "STRING", -1),
    Tensor("stop_token_ids", "INT32", -1),
    Tensor("ignore_eos", "BOOL", 1),
    Tensor("logprobs", "INT32", 1),
    Tensor("stream", "BOOL", 1),
    Tensor("include_stop", "BOOL", 1),
    Tensor("prompt_logprobs", "INT32", 1),
    Tensor("num_choices", "INT32", 1),
    Tensor("min_p", "FP32", 1),
    Tensor("repetition_penalty", "FP32", 1),
    Tensor("presence_penalty", "FP32", 1),
    Tensor("frequency_penalty", "FP32", 1),
    Tensor("logit_bias_ids", "INT32", -1),
    Tensor("logit_bias", "FP32", -1),
    Tensor("bad_words", "STRING", -1),
    Tensor("logits_processors", "STRING", -1),
    Tensor("constraint_kind", "STRING", 1),
    Tensor("constraint", "STRING", 1),
    Tensor("speculation", "BOOL", 1),
    Tensor("priority", "INT32", 1),
    Tensor("cache_salt", "STRING", 1),
    Tensor("no_store", "BOOL", 1),
)

Output = tuple[Tensor, Callable[[News], Array]]

ALWAYS: tuple[Output, ...] = (
    (Tensor("token_ids", "INT32", -1), lambda news: integers(*news.token_ids)),
    (Tensor("text", "STRING", 1), lambda news: strings(news.text.encode())),
    (Tensor("token_bytes", "STRING", -1), lambda news: strings(*news.token_bytes)),
    (Tensor("choice", "INT32", 1), lambda news: integers(news.choice)),
    (
        Tensor("finish_reason", "STRING", 1),
        lambda news: strings((news.finish_reason or "").encode()),
    ),
    (
        Tensor("stop_reason", "STRING", 1),
        lambda news: strings(json.dumps(news.stop_reason, ensure_ascii=False).encode()),
    ),
    (Tensor("num_prompt_tokens", "INT32", 1), lambda news: integers(news.num_prompt_tokens)),
    (Tensor("num_generated_tokens", "INT32", 1), lambda news: integers(news.num_generated_tokens)),
    (Tensor("num_cached_tokens", "INT32", 1), lambda news: integers(news.num_cached_tokens)),
)
"""`finish_reason` is empty until the last response of a choice; `stop_reason` is JSON: null, a token id or a stop string."""


def _logprobs(
    prefix: str,
    told_in: Callable[[News], Iterable[TokenLogprobs]],
    top_bytes_in: Callable[[News], Iterable[Iterable[bytes]]],
) -> tuple[Output, ...]:
    """Give the outputs that tell of tokens: how likely each was, and which were likeliest in its place."""
    return (
        (
            Tensor(f"{prefix}logprobs", "FP32", -1),
            lambda news: floats(*(told.logprob for told in told_in(news))),
        ),
        (
            Tensor(f"{prefix}ranks", "INT32", -1),
            lambda news: integers(*(told.rank for told in told_in(news))),
        ),
        (
            Tensor(f"{prefix}top_ids", "INT32", -1),
            lambda news: integers(*chain.from_iterable(told.top_ids for told in told_in(news))),
        ),
        (
            Tensor(f"{prefix}top_logprobs", "FP32", -1),
            lambda news: floats(*chain.from_iterable(told.top_logprobs for told in told_in(news))),
        ),
        (
            Tensor(f"{prefix}top_bytes", "STRING", -1),
            lambda news: strings(*chain.from_iterable(top_bytes_in(news))),
        ),
    )


ASKED = _logprobs("", lambda news: news.logprobs, lambda news: news.top_bytes)
"""Only where the request has `logprobs`. The `top_` ones are `[tokens, k]`, flattened; a rank of 1 is the likeliest."""

OF_PROMPT: tuple[Output, ...] = (
    (Tensor("prompt_token_ids", "INT32", -1), lambda news: integers(*news.prompt_token_ids)),
    (Tensor("prompt_token_bytes", "STRING", -1), lambda news: strings(*news.prompt_token_bytes)),
    *_logprobs("prompt_", lambda news: news.prompt_logprobs, lambda news: news.prompt_top_bytes),
)
"""The same of the prompt where the request has `prompt_logprobs`: in the first response of choice 0, and empty in all
others. Its ids and bytes are of all its tokens, the rest is of all but the first, which nothing stands before."""

OUTPUTS = tuple(tensor for tensor, _ in ALWAYS + ASKED + OF_PROMPT)
BYTES = frozenset({"token_bytes", "top_bytes", "prompt_token_bytes", "prompt_top_bytes"})
"""They may hold a part of a character, which JSON can't. Triton's generate calls, which answer in JSON, want all outputs."""
PROMPTS = ("token_ids", "text", "segments")


def read(inputs: Inputs, parameters: Parameters, wanted: Collection[str]) -> Ask:
    """Read a request.

    Raises:
        RequestError: names the tensor or parameter that is wrong.
    """
    for name in parameters:
        if name not in TRITONS_OWN and name not in CLAIM:
            raise RequestError(_unknown_parameter(name))
    params = params_of(inputs)
    names = set(wanted) if len(wanted) < len(OUTPUTS) else set(wanted) - BYTES
    outputs = ALWAYS
    if params.logprobs is not None:
        outputs += ASKED
    if params.prompt_logprobs is not None:
        outputs += OF_PROMPT
    return Ask(
        prompt=_prompt(inputs),
        params=params,
        is_streaming=inputs.scalar("stream", True),
        write=partial(_write, [output for output in outputs if output[0].name in names]),
        terms=terms_of(inputs, parameters),
    )


def _prompt(inputs: Inputs) -> Prompt:
    """Give the prompt, in whichever one form it came."""
    given = [name for name in PROMPTS if name in inputs]
    if len(given) != 1:
        what = " and ".join(given) or "none"
        raise RequestError(f"give the prompt as one of {', '.join(PROMPTS)}; got {what}.")
    if "segment_kinds" in inputs and given != ["segments"]:
        raise RequestError(f"segment_kinds belongs to segments; the prompt came as {given[0]}.")
    if "token_ids" in inputs:
        return TokenIds(inputs.integers("token_ids"))
    if "text" in inputs:
        return PlainText(inputs.texts("text")[0])
    return _segments(inputs.texts("segments"), inputs.texts("segment_kinds"))


def _segments(texts: tuple[str, ...], kinds: tuple[str, ...]) -> Segments:
    if len(texts) != len(kinds):
        raise RequestError(
            f"segments and segment_kinds must be equally many; got {len(texts)} and {len(kinds)}."
        )
    if len(texts) > MAX_SEGMENTS:
        raise RequestError(
            f"a prompt has at most {MAX_SEGMENTS} segments; got {len(texts)}. Join neighbouring texts."
        )
    for place, kind in enumerate(kinds):
        if kind not in list(SegmentKind):
            raise RequestError(f"segment_kinds[{place}] must be {' or '.join(SegmentKind)}.")
    return Segments(
        tuple(Segment(SegmentKind(kind), text) for kind, text in zip(kinds, texts, strict=True))
    )


def _unknown_parameter(name: str) -> str:
    names = [tensor.name for tensor in INPUTS]
    if name in names:
        return f"{name} is a tensor of this model and came as a parameter; send it as an input."
    return unknown_name("parameter", name[:64], names)


def _write(outputs: Collection[Output], news: Iterable[News]) -> list[dict[str, Array]]:
    """Give a response for each choice."""
    return [{tensor.name: value(each) for tensor, value in outputs} for each in news]


FORERUN = Face("forerun", INPUTS, OUTPUTS, read)
