"""What a block cache should hold, by the book: a dictionary of token prefixes, and nothing clever."""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Name(NamedTuple):
    """Names a block by what is in it."""

    owner: tuple[bytes, int] | None
    """The domain, and how many tokens before its own are everybody's; None for everybody's blocks."""
    prefix: tuple[int, ...]
    """All tokens up to the block's end."""

    def builds_on(self, other: "Name") -> bool:
        """Whether the other is this block or one before it."""
        length = len(other.prefix)
        if other.owner is None and self.owner is not None and length > self.owner[1]:
            return False
        return other.owner in {None, self.owner} and other.prefix == self.prefix[:length]


class Model:
    """`room` blocks that can be given; who holds which is told at each call."""

    def __init__(self, room: int, block_size: int) -> None:
        self.room = room
        self.size = block_size
        self.blocks: dict[Name, int] = {}
        """Published blocks."""
        self.used: dict[Name, tuple[int, float]] = {}
        """At which turn, and when, a block was last given back or built on, or one that builds on it was."""
        self.turn = 0

    def names(self, domain: bytes, tokens: Sequence[int], common: int) -> list[Name]:
        """Name the complete blocks of a prompt, `common` tokens of which are everybody's."""
        ends = range(self.size, len(tokens) + 1, self.size)
        own = domain, common
        return [Name(None if end <= common else own, tuple(tokens[:end])) for end in ends]

    def find(self, domain: bytes, tokens: Sequence[int], common: int) -> tuple[list[int], int]:
        """Give the blocks that `tokens` begin with, and how many tokens more another begins with."""
        blocks: list[int] = []
        for name in self.names(domain, tokens, common):
            if name not in self.blocks:
                break
            blocks.append(self.blocks[name])
        start = len(blocks) * self.size
        owner = None if start + self.size <= common else (domain, common)
        best = 0
        for name in self.blocks:
            if name.owner == owner and len(name.prefix) == start + self.size:
                shared = _shared(name.prefix, tokens)
                best = max(best, shared - start)
        return blocks, best

    def publish(
        self, names: list[Name], table: Sequence[int], held: set[int], now_s: float
    ) -> None:
        """Take in what is new; it is a use of what it builds on, where nobody holds that."""
        pairs = zip(names, table, strict=False)
        new = {name: block for name, block in pairs if name not in self.blocks}
        self.blocks |= new
        self.turn += 1
        for other, block in self.blocks.items():
            if block not in held and any(name.builds_on(other) for name in new):
                self.used[other] = self.turn, now_s

    def give_back(self, released: Collection[int], held: set[int], now_s: float) -> None:
        """Note the use of what was released, and of all it builds on, where nobody holds it."""
        self.turn += 1
        idle = [name for name, block in self.blocks.items() if block not in held]
        for name in idle:
            if self.blocks[name] in released:
                for other in idle:
                    if name.builds_on(other):
                        self.used[other] = self.turn, now_s

    def make_room(self, count: int, held: set[int]) -> None:
        """Forget the block used longest ago, of equals the deepest, until `count` are free."""
        while self.room - len(held | set(self.blocks.values())) < count:
            idle = [name for name, block in self.blocks.items() if block not in held]
            self.forget(min(idle, key=lambda name: (self.used[name], -len(name.prefix))))

    def expire(self, until_s: float, held: set[int]) -> None:
        idle = [name for name, block in self.blocks.items() if block not in held]
        for name in [name for name in idle if self.used[name][1] <= until_s]:
            self.forget(name)

    def erase(self, domain: bytes) -> None:
        for name in [name for name in self.blocks if name.owner and name.owner[0] == domain]:
            self.forget(name)

    def forget(self, name: Name) -> None:
        """Forget a block and all that builds on it."""
        for other in [other for other in self.blocks if other.builds_on(name)]:
            del self.blocks[other]


def _shared(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Count the tokens at the beginning that are the same."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next(
        (count for count, (our, their) in pairs if our != their), min(len(ours), len(theirs))
    )
