"""The published blocks by key: a forest of token prefixes. It counts no references and frees no block.

A key is never believed alone: a node is taken for a block of a sequence only if its tokens, its domain and
the node before it are the sequence's too. So equal keys of different prefixes cost a miss, not an answer.
"""

from array import array
from collections.abc import Iterable
from itertools import islice

from triton_backend.kv.chain import Chain
from triton_backend.kv.node import Node

MAX_SIBLINGS = 64
"""Most blocks looked at for a partial match: it bounds the cost where thousands continue one prompt."""


class PrefixIndex:
    """Every node's parent is in the index too."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.nodes: dict[bytes, Node] = {}
        """All nodes by key."""
        self.by_block: dict[int, Node] = {}
        """All nodes by block."""
        self.roots: dict[bytes, dict[bytes, Node]] = {}
        """First blocks of prompts by domain, then by key; oldest first."""

    def follow(self, chain: Chain, token_ids: "array[int]", num_blocks: int) -> int:
        """Bring the path of a shared chain up to date; count how many of the first `num_blocks` are there.

        It costs what changed since the last call, not the length of the path.
        """
        path = chain.path
        while path and not path[-1].is_indexed:
            path.pop()
        while len(path) < num_blocks:
            node = self.nodes.get(chain.key(len(path), token_ids))
            if node is None or not self._continues(chain, token_ids, node):
                break
            path.append(node)
        return min(len(path), num_blocks)

    def _continues(self, chain: Chain, token_ids: "array[int]", node: Node) -> bool:
        """Whether a node is what comes after a chain's path, and not just has the same key."""
        index = len(chain.path)
        start = index * self._block_size
        return (
            node.token_ids == token_ids[start : start + self._block_size]
            and node.parent is (chain.path[-1] if index else None)
            and node.domain == chain.owner(index, token_ids)
        )

    def begins_with(
        self, parent: Node | None, domain: bytes, token_ids: "array[int]"
    ) -> tuple[Node | None, int]:
        """Find the block of a domain after `parent` that begins with the most of `token_ids`.

        Gives it and how many tokens they share: None and 0 if not even the first. Of equals, the newest.
        """
        siblings = self.roots.get(domain, {}) if parent is None else parent.children
        best, most = None, 0
        for node in islice(reversed(siblings.values()), MAX_SIBLINGS):
            if node.domain == domain and node.token_ids[: most + 1] == token_ids[: most + 1]:
                best, most = node, _count_shared(node.token_ids, token_ids)
        return best, most

    def add(
        self, key: bytes, parent: Node | None, *, domain: bytes, token_ids: "array[int]", block: int
    ) -> Node:
        """Put a block in. Neither the key nor the block may be there, and the parent must be."""
        assert key not in self.nodes
        assert block not in self.by_block
        node = Node(key, parent, domain, token_ids, block)
        siblings = self.roots.setdefault(domain, {}) if parent is None else parent.children
        siblings[key] = self.nodes[key] = self.by_block[block] = node
        return node

    def remove(self, node: Node) -> list[Node]:
        """Take a node out, with all that comes after it; give what was taken, parents first."""
        if node.parent is not None:
            del node.parent.children[node.key]
        else:
            del self.roots[node.domain][node.key]
            if not self.roots[node.domain]:
                del self.roots[node.domain]
        removed = [node]
        for each in removed:
            removed.extend(each.children.values())
        self._forget(removed)
        return removed

    def clear(self) -> list[Node]:
        """Take everything out; give what was taken."""
        removed = list(self.nodes.values())
        self.roots.clear()
        self._forget(removed)
        return removed

    def _forget(self, removed: Iterable[Node]) -> None:
        for node in removed:
            del self.nodes[node.key], self.by_block[node.block]
            node.is_indexed = False
            # Chains may hold a removed node for a while; it shall not hold its relatives.
            node.parent = None
            node.children = {}


def _count_shared(ours: "array[int]", theirs: "array[int]") -> int:
    """Count the tokens at the beginning that are the same."""
    count = 0
    for our, their in zip(ours, theirs, strict=False):
        if our != their:
            break
        count += 1
    return count
