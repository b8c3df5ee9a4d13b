"""The fixed scales of keys and values that a checkpoint brings along: one for the keys and one for the values of each layer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KVScales:
    """A stored number times its scale is the key, or the value."""

    dtype: str
    """`fp8` or `int8-static`."""
    keys: tuple[float, ...]
    """`[L]`, of the keys as attention takes them, rotated; float32 numbers."""
    values: tuple[float, ...]
