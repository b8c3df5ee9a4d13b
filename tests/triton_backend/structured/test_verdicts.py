"""What is kept of compiling: as many bytes as may be, and what was asked for last."""

from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.verdicts import BYTES_OF_ENTRY, BYTES_PER_CHARACTER, Verdicts


def regex(text: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, text)


def kept(verdicts: Verdicts[int], *texts: str) -> list[int | str | None]:
    return [verdicts.find(regex(text)) for text in texts]


def test_a_verdict_is_found_until_its_room_is_needed() -> None:
    verdicts: Verdicts[int] = Verdicts(max_bytes=3 * (1000 + BYTES_OF_ENTRY + BYTES_PER_CHARACTER))
    for number, text in enumerate("abc"):
        verdicts.keep(regex(text), number, 1000)
    assert verdicts.find(regex("a")) == 0
    verdicts.keep(regex("d"), 3, 1000)
    assert kept(verdicts, "a", "b", "c", "d") == [0, None, 2, 3]


def test_small_verdicts_are_kept_by_the_hundred_and_a_large_one_pushes_many_out() -> None:
    verdicts: Verdicts[int] = Verdicts(max_bytes=1_000_000)
    for number in range(300):
        verdicts.keep(regex(f"{number:03}"), number, 1000)
    assert kept(verdicts, "000", "299") == [0, 299]
    verdicts.keep(regex("large"), 7, 900_000)
    assert kept(verdicts, "100", "299", "large") == [None, 299, 7]


def test_the_texts_count_too() -> None:
    verdicts: Verdicts[int] = Verdicts(max_bytes=10_000)
    verdicts.keep(regex("a"), "it is wrong", 0)
    assert verdicts.find(regex("a")) == "it is wrong"
    verdicts.keep(regex("b" * 2000), 1, 0)
    verdicts.keep(regex("c"), "no" * 1000, 0)
    assert kept(verdicts, "a", "b" * 2000, "c") == [None, None, "no" * 1000]


def test_keeping_again_counts_once() -> None:
    verdicts: Verdicts[int] = Verdicts(max_bytes=2000)
    for number in range(100):
        verdicts.keep(regex("a"), number, 100)
    assert kept(verdicts, "a") == [99]
    assert verdicts._num_bytes < 2000


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    verdicts: Verdicts[int] = Verdicts(max_bytes=1000)
    verdicts.keep(regex("a"), 1, 5000)
    assert kept(verdicts, "a") == [None]
