"""Bad words: the last id of a run is banned where the answer ends with the ids before it."""

from triton_backend.request import MAX_BAD_WORD_TOKENS
from triton_backend.rows import LogitRow
from triton_backend.sampling.ban import Ban


def bad_words_of(row: LogitRow) -> Ban | None:
    """Give the ids that would complete a bad word in a row; words begin in the answer, not in the prompt."""
    words = row.sequence.request.params.bad_words
    if not words:
        return None
    num_tail = min(row.num_generated, MAX_BAD_WORD_TOKENS - 1)
    tokens = row.sequence.token_ids[-num_tail:] if num_tail else ()
    tail = (*tokens, *row.drafted)[-num_tail:] if num_tail else ()
    banned = {word[-1] for word in words if _ends_with(tail, word[:-1])}
    return Ban(banned) if banned else None


def _ends_with(tail: tuple[int, ...], run: tuple[int, ...]) -> bool:
    """Whether `tail` ends with `run`; everything ends with an empty one."""
    return not run or tail[-len(run) :] == run
