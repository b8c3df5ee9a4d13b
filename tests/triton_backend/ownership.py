"""Watches who writes and who reads each KV slot: whoever reads what another wrote must be allowed to (P6).

It sees steps alone, not the cache: what the cache believes of a block is no evidence.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from builder.artifact.step import StepTensors


@dataclass(frozen=True)
class Written:
    """What is in a slot."""

    request_id: str
    domain: bytes | None
    """None: for the request that wrote it alone."""
    known: tuple[int, ...]
    """The tokens up to this one: what the entry depends on."""
    readers: frozenset[str] = frozenset()
    """Requests that held it when its domain was erased."""


@dataclass
class Ownership:
    """The contents of every slot of the first KV group."""

    block_size: int
    common: tuple[int, ...] = ()
    """A beginning of prompts that all domains share: its full blocks may be read by all."""
    slots: dict[int, Written] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    """Requests whose domain was erased while they lived: nothing of theirs is for others any more."""

    def erase(self, domain: bytes, alive: set[str]) -> None:
        """Let nobody read what a domain wrote so far, but the requests that are `alive`."""
        self.private |= alive
        for slot, content in self.slots.items():
            if content.domain == domain and not self.is_common(content.known):
                self.slots[slot] = replace(content, domain=None, readers=frozenset(alive))

    def watch(self, step: StepTensors, sequences: list[Any]) -> None:
        """Follow a step of `sequences`, in the order of the step."""
        for group, source, destination in step.block_copies.tolist():
            if group == 0:
                self._copy(source, destination)
        for index, sequence in enumerate(sequences):
            first, end = step.query_start[index : index + 2].tolist()
            slots = step.slot_mapping[0, first:end].tolist()
            start = int(step.positions[first])
            known = (*sequence.token_ids[:start], *step.token_ids[first:end].tolist())
            self._read(step.block_tables[0, index].tolist(), sequence, start)
            for place, slot in enumerate(slots, start):
                self.slots[slot] = self._written(sequence.request, known[: place + 1])

    def is_common(self, known: tuple[int, ...]) -> bool:
        """Whether a slot is in a block that is common to all."""
        end = -(-len(known) // self.block_size) * self.block_size
        return end <= len(self.common) and known == self.common[: len(known)]

    def _copy(self, source: int, destination: int) -> None:
        for offset in range(self.block_size):
            content = self.slots.get(source * self.block_size + offset)
            if content is not None:
                self.slots[destination * self.block_size + offset] = content

    def _read(self, table: list[int], sequence: Any, length: int) -> None:
        """Check that a sequence may read the first `length` slots of its table."""
        request, known = sequence.request, tuple(sequence.token_ids)
        for place in range(length):
            slot = table[place // self.block_size] * self.block_size + place % self.block_size
            content = self.slots.get(slot)
            assert content is not None, "reads a slot that nobody wrote"
            assert content.known == known[: place + 1], "reads what follows from other tokens"
            if request.request_id not in {content.request_id, *content.readers}:
                assert content.domain is not None, "reads what was not to be stored"
                is_own = content.domain == request.domain
                assert is_own or self.is_common(content.known), "reads another domain's blocks"

    def _written(self, request: Any, known: tuple[int, ...]) -> Written:
        is_shared = request.store and request.request_id not in self.private
        return Written(request.request_id, request.domain if is_shared else None, known)
