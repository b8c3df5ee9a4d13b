"""The published prefixes as a tree of runs, for people to look at. It shows counts, never tokens.

A run is a stretch of blocks that each have one continuation, one domain and the same number of holders.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triton_backend.kv.keys import COMMON
from triton_backend.kv.node import Node
from triton_backend.kv.pool import BlockPool
from triton_backend.kv.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class RadixRun:
    """One edge of the tree; the runs of a tree come parents first, each branch as a whole."""

    depth: int
    """Runs above it."""
    domain: bytes
    key: bytes
    """Of its last block."""
    blocks: tuple[int, ...]
    num_tokens: int
    num_holders: int
    """References of sequences to each of its blocks."""


def radix_view(index: PrefixIndex, pool: BlockPool) -> list[RadixRun]:
    """Give the tree of an index: runs in the order of their text form."""
    return [
        RadixRun(
            depth=depth,
            domain=run[-1].domain,
            key=run[-1].key,
            blocks=tuple([node.block for node in run]),
            num_tokens=sum([len(node.token_ids) for node in run]),
            num_holders=_num_holders(run[0], pool),
        )
        for depth, run in runs(index, pool)
    ]


def runs(index: PrefixIndex, pool: BlockPool) -> Iterator[tuple[int, list[Node]]]:
    """Walk the tree depth first: each run with the number of runs above it."""
    # Not by recursion: a prompt that shares a bit less with each before it makes a tree of any depth.
    first = [node for roots in index.roots.values() for node in roots.values()]
    open_ends = [(0, node) for node in reversed(first)]
    while open_ends:
        depth, node = open_ends.pop()
        run = [node]
        while (following := _only_child(node)) is not None and _is_alike(node, following, pool):
            run.append(following)
            node = following
        open_ends.extend((depth + 1, child) for child in reversed(node.children.values()))
        yield depth, run


def radix_text(tree: Iterable[RadixRun]) -> str:
    """Write a tree for people, a line a run; domains and keys are cut to 8 digits."""
    return "\n".join(_line(run) for run in tree)


def _line(run: RadixRun) -> str:
    owner = "common" if run.domain == COMMON else f"domain {run.domain.hex()[:8] or '(default)'}"
    name = f"{run.key.hex()[:8]} {owner}"
    blocks = f"{len(run.blocks)} blocks, {run.num_tokens} tokens, held by {run.num_holders}"
    return f"{'  ' * run.depth}{name}: {blocks}"


def _only_child(node: Node) -> Node | None:
    return next(iter(node.children.values())) if len(node.children) == 1 else None


def _is_alike(node: Node, following: Node, pool: BlockPool) -> bool:
    """Whether two blocks belong in one run."""
    same_domain = node.domain == following.domain
    return same_domain and _num_holders(node, pool) == _num_holders(following, pool)


def _num_holders(node: Node, pool: BlockPool) -> int:
    """Count references to a published block, without the index's own."""
    return pool.num_references(node.block) - 1
