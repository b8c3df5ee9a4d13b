"""Refuses a request that can never be served as it stands, before it costs anything.

What passes here is finished in the end, whatever else runs: alone it fits the limits and the pool.
"""

from builder.artifact.config import Limits
from builder.errors import RequestError
from triton_backend.kv.pool import BlockPool
from triton_backend.request import Request


def resolve_max_known(request: Request, limits: Limits, pool: BlockPool) -> int:
    """Give the tokens of prompt and answer together at which the answer ends with `length`.

    The boundary is exact: prompt + max_tokens = `max_seq_len` is admitted. The last token of an answer
    needs no KV. Without `max_tokens` the answer may fill whatever the limits and the pool allow.

    Raises:
        RequestError: the prompt is empty, or prompt and answer exceed a limit, which is named.
    """
    num_prompt = len(request.prompt_token_ids)
    max_tokens = request.params.max_tokens
    if not num_prompt:
        raise RequestError("the prompt must have at least 1 token; got 0.")

    num_blocks = pool.num_blocks - 1
    pool_tokens = num_blocks * pool.block_size + 1
    asked = f"a prompt of {num_prompt} tokens and an answer of " + (
        "at least 1" if max_tokens is None else f"{max_tokens}"
    )
    least = num_prompt + (1 if max_tokens is None else max_tokens)
    if least > limits.max_seq_len:
        raise RequestError(f"{asked} exceed max_seq_len {limits.max_seq_len}; shorten one of them.")
    if least > pool_tokens:
        raise RequestError(
            f"{asked} need {pool.blocks_for(least - 1)} KV blocks of {pool.block_size} tokens;"
            f" the pool has {num_blocks}."
        )
    max_known = min(limits.max_seq_len, pool_tokens) if max_tokens is None else least
    if num_prompt + request.params.min_tokens > max_known:
        raise RequestError(
            f"min_tokens {request.params.min_tokens} does not fit: after a prompt of {num_prompt} tokens"
            f" the answer has at most {max_known - num_prompt}."
        )
    return max_known


def resolve_stopping_ids(
    request: Request, end_token_ids: frozenset[int], vocab_size: int
) -> frozenset[int]:
    """Give the ids that end the answer: the artifact's, unless ignored, and the request's own.

    Raises:
        RequestError: a stop token id is not in the vocabulary, or `min_tokens` bans every id.
    """
    params = request.params
    check_token_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    own = frozenset(params.stop_token_ids)
    stopping = own if params.ignore_eos else end_token_ids | own
    if params.min_tokens and len(stopping) == vocab_size:
        raise RequestError(
            f"min_tokens {params.min_tokens} leaves nothing to generate: all {vocab_size} ids of the"
            " vocabulary would end the answer."
        )
    return stopping


def check_token_ids(name: str, ids: tuple[int, ...], vocab_size: int) -> None:
    """Refuse ids that are not in the vocabulary.

    Raises:
        RequestError: an id is below 0 or not below `vocab_size`.
    """
    # min and max find out in C; only a refusal looks for the culprit.
    if not ids or 0 <= min(ids) <= max(ids) < vocab_size:
        return
    index = next(index for index, token_id in enumerate(ids) if not 0 <= token_id < vocab_size)
    raise RequestError(
        f"{name}[{index}] must be an id from 0 to {vocab_size - 1}; got {ids[index]}."
    )
