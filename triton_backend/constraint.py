"""What an answer must conform to, as a client states it. Nothing here understands a grammar."""

from dataclasses import dataclass, field
from enum import StrEnum

from builder.errors import RequestError
from triton_backend.field_checks import check_type

MAX_CHARACTERS = 2**16


class ConstraintKind(StrEnum):
    """The language in which a constraint is written."""

    JSON_SCHEMA = "json_schema"
    """A JSON schema; the empty schema `{}` allows any JSON value."""
    REGEX = "regex"
    """A regular expression that the whole answer matches."""
    CHOICE = "choice"
    """A JSON array of strings; the answer is one of them."""
    GRAMMAR = "grammar"
    """A grammar in EBNF, with the start rule `root`."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A language that the answer belongs to.

    Raises:
        RequestError: a field is of a wrong type or too long. Whether `text` is valid is seen at submit.
    """

    kind: ConstraintKind
    text: str = field(repr=False)

    def __post_init__(self) -> None:
        check_type("constraint.text", self.text, str)
        check_type("constraint.kind", self.kind, ConstraintKind)
        if len(self.text) > MAX_CHARACTERS:
            raise RequestError(
                f"constraint.text must have at most {MAX_CHARACTERS} characters; got {len(self.text)}."
            )
