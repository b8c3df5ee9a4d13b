"""What the compiler, as it is installed, makes of a grammar, over a vocabulary of bytes."""

from llguidance import LLMatcher, LLTokenizer


class Bytes:
    """Each byte, and an end."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 256
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def matcher_of(grammar: str) -> LLMatcher:
    return LLMatcher(LLTokenizer(Bytes(), n_vocab=257), grammar, log_level=0)  # type: ignore[arg-type]


def problem_in(grammar: str) -> str:
    """What is wrong with a grammar, as far as its first mask; nothing if it is well."""
    matcher = matcher_of(grammar)
    matcher.compute_bitmask()
    return str(matcher.get_error()) if matcher.is_error() else ""


def accepts(grammar: str, text: str) -> bool:
    """Whether a text is a whole answer."""
    matcher = matcher_of(grammar)
    assert not matcher.is_error(), matcher.get_error()
    return all(map(matcher.consume_token, text.encode())) and bool(matcher.is_accepting())
