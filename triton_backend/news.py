"""What a step brought an answer, as its front hears of it: with the bytes of all tokens, which the front can't know."""

from collections.abc import Callable

from triton_backend.messages import News
from triton_backend.request import Delta


def news_of(delta: Delta, number: int, token_bytes: Callable[[int], bytes]) -> News:
    """Give the news of a delta, for the request that its front knows by `number`."""
    return News(
        id=number,
        token_ids=delta.token_ids,
        text=delta.text,
        token_bytes=tuple(map(token_bytes, delta.token_ids)),
        num_prompt_tokens=delta.num_prompt_tokens,
        num_generated_tokens=delta.num_generated_tokens,
        finish_reason=delta.finish_reason,
        stop_reason=delta.stop_reason,
        error=delta.error,
        logprobs=delta.logprobs,
        top_bytes=tuple(tuple(map(token_bytes, told.top_ids)) for told in delta.logprobs),
        prompt_token_ids=delta.prompt_token_ids,
        prompt_token_bytes=tuple(map(token_bytes, delta.prompt_token_ids)),
        prompt_top_bytes=tuple(
            tuple(map(token_bytes, told.top_ids)) for told in delta.prompt_logprobs
        ),
        choice=delta.choice,
        is_last=delta.is_last,
        num_cached_tokens=delta.num_cached_tokens,
        prompt_logprobs=delta.prompt_logprobs,
    )
