"""Read a quantization_config so that nothing in it is silently ignored: a field is read, harmless, or refused by name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from builder.checkpoint.groups import CHANNEL
from builder.errors import CheckpointError, UnsupportedError

T = TypeVar("T", str, int, bool)
MAX_GROUP = 1 << 16
MAX_NAMES, MAX_NAME = 100_000, 512


class Fields:
    """Takes the fields of one section, each by what it may hold, and remembers which."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self._raw = raw
        self._where = where
        self._read: set[str] = set()

    def take(self, name: str, *aliases: str) -> Any:
        """Give a field as it is, or one that says the same by another name; None without any.

        Raises:
            CheckpointError: two names of the same field contradict each other.
        """
        given = [key for key in (name, *aliases) if self._raw.get(key) is not None]
        self._read.update((name, *aliases))
        values = [self._raw[key] for key in given]
        if any(value != values[0] for value in values):
            raise CheckpointError(f"{self._where}: {' and '.join(given)} contradict each other")
        return values[0] if values else None

    def choice(self, name: str, allowed: Sequence[T], *aliases: str, default: T | None = None) -> T:
        """Give a field that must have one of these values; text in lower case.

        Raises:
            UnsupportedError: it has another.
        """
        value = self.take(name, *aliases)
        value = default if value is None else value
        value = value.lower() if isinstance(value, str) else value
        for one in allowed:
            if type(value) is type(one) and value == one:
                return one
        raise self.unsupported(name, value, allowed)

    def flag(self, name: str, *, default: bool) -> bool:
        """Give a field that is true or false."""
        return self.choice(name, (True, False), default=default)

    def group(self, name: str, *aliases: str) -> int:
        """Give a group size; -1, 0 and absence are a whole row.

        Raises:
            CheckpointError: it is no size.
        """
        value = self.take(name, *aliases)
        if value is None or (type(value) is int and value in (-1, CHANNEL)):
            return CHANNEL
        if type(value) is not int or not 0 < value <= MAX_GROUP:
            raise CheckpointError(
                f"{self._where}: {name} is {shown(value)}, which is no group size"
            )
        return value

    def names(self, name: str, *aliases: str) -> tuple[str, ...]:
        """Give a list of names, which may be absent.

        Raises:
            CheckpointError: it is something else.
        """
        value = self.take(name, *aliases) or []
        if not isinstance(value, list) or len(value) > MAX_NAMES:
            raise CheckpointError(f"{self._where}: {name} is no list of names")
        for one in value:
            if not isinstance(one, str) or not 0 < len(one) <= MAX_NAME:
                raise CheckpointError(f"{self._where}: {name} holds {shown(one)}, which is no name")
        return tuple(value)

    def section(self, name: str) -> "Fields | None":
        """Give the fields of a section in this one; None if it is absent.

        Raises:
            CheckpointError: it is no section.
        """
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CheckpointError(f"{self._where}: {name} is {shown(value)}, not an object")
        return Fields(value, f"{self._where}, {name}")

    def sections(self, name: str) -> dict[str, "Fields"]:
        """Give the sections that a section consists of, at least one, by name.

        Raises:
            CheckpointError: there is none.
        """
        value = self.take(name)
        if not isinstance(value, dict) or not value:
            raise CheckpointError(
                f"{self._where}: {name} is {shown(value)}, not an object of objects"
            )
        inner = Fields(value, f"{self._where}, {name}")
        found = {key: inner.section(key) for key in value}
        return {key: one for key, one in found.items() if one is not None}

    def require_empty(self, *names: str) -> None:
        """Refuse fields that ask for something.

        Raises:
            UnsupportedError: one does.
        """
        for name in names:
            if value := self.take(name):
                raise UnsupportedError(
                    f"{self._where}: {name} is {shown(value)}, which is not supported"
                )

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Refuse what nobody read, unless it is empty or known to change nothing.

        Raises:
            UnsupportedError: there is such a field.
        """
        asking = {name for name, value in self._raw.items() if value not in (None, {}, [])}
        left = sorted(asking - self._read - set(harmless))
        if left:
            raise UnsupportedError(
                f"{self._where}: {', '.join(name[:40] for name in left[:5])} not known; nothing of it is ignored"
            )

    def unsupported(self, name: str, value: object, allowed: Iterable[object]) -> UnsupportedError:
        """Make the error about a value that is not among those allowed."""
        known = ", ".join(map(str, allowed))
        return UnsupportedError(
            f"{self._where}: {name} {shown(value)} is not supported; supported: {known}"
        )


def as_block(value: object) -> tuple[int, int] | None:
    """Give the two sizes of a block, outputs and inputs; None if it is something else."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    is_block = all(type(size) is int and 0 < size <= MAX_GROUP for size in value)
    return (value[0], value[1]) if is_block else None


def shown(value: object) -> str:
    """Show a value of a config, cut short."""
    text = repr(value) if not isinstance(value, str) else ascii(value)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."
