"""Proves that a cache's books are right. For tests, and for a running engine when it is idle."""

from collections.abc import Iterable, Mapping, Sequence

from builder.errors import EngineError
from triton_backend.kv.keys import COMMON
from triton_backend.kv.node import Node
from triton_backend.kv.pool import BlockPool
from triton_backend.kv.prefix_index import PrefixIndex


def check_cache(
    index: PrefixIndex, idle: Mapping[int, Node], pool: BlockPool, tables: Iterable[Sequence[int]]
) -> None:
    """Prove that each block is exactly one of reserved, free, idle or held, and the index a forest.

    Raises:
        EngineError: it isn't so; the message shows the terms of the broken equation.
    """
    # The index holds one reference to each of its blocks, like one more sequence.
    pool.check_integrity([*tables, [node.block for node in index.nodes.values()]])
    _check_forest(index)
    _check_idle(index, idle, pool)


def _check_forest(index: PrefixIndex) -> None:
    """Prove that each node is reached from the roots once, by its own key, and has a block of its own."""
    reached: list[Node] = []
    for domain, roots in index.roots.items():
        for key, node in roots.items():
            _check_node(key, node, None, index)
            if node.domain != domain:
                raise EngineError(f"KV index broken: block {node.block} begins a foreign domain.")
            reached.append(node)
    for node in reached:
        for key, child in node.children.items():
            _check_node(key, child, node, index)
            reached.append(child)
    if not len(reached) == len(index.nodes) == len(index.by_block):
        raise EngineError(
            f"KV index broken: {len(reached)} nodes reached, {len(index.nodes)} by key,"
            f" {len(index.by_block)} by block."
        )


def _check_node(key: bytes, node: Node, parent: Node | None, index: PrefixIndex) -> None:
    problems = {
        "is not found by its key": index.nodes.get(key) is not node or node.key != key,
        "is not found by its number": index.by_block.get(node.block) is not node,
        "has another parent": node.parent is not parent,
        "counts as removed": not node.is_indexed,
        "follows a foreign domain": parent is not None
        and parent.domain not in {node.domain, COMMON},
    }
    for problem, is_there in problems.items():
        if is_there:
            raise EngineError(f"KV index broken: block {node.block} {problem}.")


def _check_idle(index: PrefixIndex, idle: Mapping[int, Node], pool: BlockPool) -> None:
    """Prove that idle blocks are those that only the index holds, each before those it builds on."""
    unheld = {block for block in index.by_block if pool.num_references(block) == 1}
    if idle.keys() != unheld:
        raise EngineError(
            f"KV cache broken: {len(idle)} blocks idle, {len(unheld)} held by nobody,"
            f" {len(idle.keys() & unheld)} are both."
        )
    places = {block: place for place, block in enumerate(idle)}
    for block, node in idle.items():
        above = node.parent
        while above is not None and above.block not in idle:
            above = above.parent
        if above is not None and places[above.block] < places[block]:
            raise EngineError(
                f"KV cache broken: block {above.block} is evicted before {block}, which builds on it."
            )
