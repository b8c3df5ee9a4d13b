"""Messages about unknown names."""

from builder.errors import unknown_name


def test_an_unknown_name_is_answered_with_close_and_known_ones() -> None:
    told = unknown_name("format", "fp9", ["int4", "fp8"])
    assert told == "unknown format 'fp9'. Did you mean fp8? Known: fp8, int4."
    assert unknown_name("format", "x", []) == "unknown format 'x'. Known: none."


def test_of_an_unknown_name_only_the_beginning_is_looked_at_and_quoted() -> None:
    told = unknown_name("format", "fp" * 500_000, ["fp8"])
    assert told == f"unknown format '{'fp' * 32}'. Known: fp8."
