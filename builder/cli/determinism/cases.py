"""The requests that the proof serves: prompts of many lengths, greedy and drawn, some with a common start.

They depend on the artifact alone: on its tokenizer, its block size and its limits.
"""

import dataclasses

from builder.artifact.config import Limits
from builder.errors import UserError
from triton_backend.request import Request, SamplingParams

TEXT = (
    "The lighthouse keeper counted the ships at dawn: one, two, three, and a fourth behind the rain. "
    "He wrote each name into the book, then the hour, then the wind, as his mother had done. "
    "Nobody read the book, but the book was full, and a full book is a kind of company. "
    "In winter he counted again: one, two, three, and no fourth. The wind was in the book. "
    "When the new lamp came he asked who would count now, and the answer was a number. "
)
LONGEST_PROMPT = 160
"""Tokens; more would prove no more, and take longer."""
NUM_TOP = 5


def make_cases(
    text_ids: tuple[int, ...], limits: Limits, *, count: int, max_tokens: int, block_size: int
) -> list[Request]:
    """Give `count` requests with answers of `max_tokens` tokens; `text_ids` are those of `TEXT`.

    Every third prompt begins with one common run that ends inside a block, so that whole blocks and a part
    of one can be reused.

    Raises:
        UserError: the limits leave no room for such prompts and answers.
    """
    longest = min(LONGEST_PROMPT, limits.max_seq_len - max_tokens)
    if longest < 2 * block_size:
        raise UserError(
            f"answers of {max_tokens} tokens leave {max(longest, 0)} of max_seq_len {limits.max_seq_len} "
            f"for prompts, and the proof needs {2 * block_size}; lower --max-tokens"
        )
    ids = text_ids * -(-2 * longest // len(text_ids))
    shared = ids[: block_size + block_size // 2]
    return [
        Request(str(number), _prompt(ids, shared, number, longest), _params(number, max_tokens))
        for number in range(count)
    ]


def with_choices(case: Request, count: int) -> Request:
    """Ask the same for several choices."""
    return dataclasses.replace(case, params=dataclasses.replace(case.params, num_choices=count))


def _prompt(
    ids: tuple[int, ...], shared: tuple[int, ...], number: int, longest: int
) -> tuple[int, ...]:
    length = 1 + (37 * number + longest // 2) % longest
    start = 11 * number % longest
    own = ids[start : start + length]
    return (shared + own)[:longest] if number % 3 == 0 else own


def _params(number: int, max_tokens: int) -> SamplingParams:
    """Greedy for even numbers, drawn for odd ones."""
    greedy = SamplingParams(
        temperature=0.0, max_tokens=max_tokens, ignore_eos=True, logprobs=NUM_TOP
    )
    if number % 2 == 0:
        return greedy
    return dataclasses.replace(greedy, temperature=0.8, top_p=0.95, seed=number)
