"""Token ids of one answer to text, as they come.

The text given so far is always the text of all bytes so far, as `bytes.decode("utf-8", "replace")` reads
them, without a character that is still incomplete at their end: that one waits for its bytes, and is
dropped if the answer ends first. Bytes that can't be part of any character become U+FFFD.
"""

import codecs
from collections.abc import Iterable

from triton_backend.tokenizer import Tokenizer

_new_decoder = codecs.getincrementaldecoder("utf-8")


def opens_text(tokenizer: Tokenizer, prompt_token_ids: Iterable[int]) -> bool:
    """Tell whether the text of an answer opens a text: whether no token of its prompt gives any.

    A SentencePiece decoder drops the space that opens a text. Prompt and answer are one text, so an answer
    keeps its first space where the prompt has text.
    """
    return not any(map(tokenizer.token_bytes, prompt_token_ids))


class Detokenizer:
    """Decodes one answer; the text depends on the ids alone, not on how they are cut into calls."""

    def __init__(self, tokenizer: Tokenizer, *, opens_text: bool = True) -> None:
        """Begin an answer; say whether its text opens a text, as `opens_text` tells of its prompt."""
        self._tokenizer = tokenizer
        self._opens_text = opens_text
        self._decoder = _new_decoder("replace")

    def feed(self, token_ids: Iterable[int]) -> str:
        """Take the next tokens; give the text that they complete."""
        return self._decoder.decode(b"".join(map(self._bytes, token_ids)))

    def _bytes(self, token_id: int) -> bytes:
        data = self._tokenizer.token_bytes(token_id)
        if self._opens_text and data:
            self._opens_text = False
            return self._tokenizer.opening_bytes(token_id)
        return data
