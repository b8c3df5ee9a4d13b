"""What a provider compiles, it compiles once; what it refuses for good, it refuses again at once."""

import pytest

from builder.errors import RequestError, UnavailableError
from triton_backend.constraint import MAX_CHARACTERS, Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of
from triton_backend.structured.guidance import GuidanceProvider

TOKENS = (b"a", b"b")


def regex(pattern: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern)


def counted() -> tuple[GuidanceProvider, list[str]]:
    """A provider, and the texts that it tries."""
    texts: list[str] = []

    def trial(constraint: Constraint) -> str:
        texts.append(constraint.text)
        if constraint.text == "busy":
            raise UnavailableError("busy")
        if constraint.text == "wrong":
            raise RequestError("it is wrong")
        return grammar_of(constraint)

    return GuidanceProvider(
        TOKENS, lambda text: ["ab".index(each) for each in text], trial=trial
    ), texts


def test_a_constraint_is_compiled_once() -> None:
    provider, texts = counted()
    assert not provider.knows(regex("a*"))
    first = provider.compile(regex("a*"))
    assert provider.knows(regex("a*"))
    assert provider.compile(regex("a*")) is first
    assert texts == ["a*"]


def test_a_refusal_is_found_again_and_a_busy_machine_is_none() -> None:
    provider, texts = counted()
    for text, error in (("wrong", RequestError), ("busy", UnavailableError)):
        for _ in range(2):
            with pytest.raises(error, match=text):
                provider.compile(regex(text))
    assert texts == ["wrong", "busy", "busy"]
    assert provider.knows(regex("wrong"))
    assert not provider.knows(regex("busy"))


def test_a_constraint_that_is_too_long_is_none() -> None:
    with pytest.raises(
        RequestError, match=f"{MAX_CHARACTERS} characters; got {MAX_CHARACTERS + 1}"
    ):
        regex("a" * (MAX_CHARACTERS + 1))
