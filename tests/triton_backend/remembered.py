"""What must be found again: every full block that was computed and may be shared, until the first is removed.

It remembers prefixes of tokens, not blocks or keys, so it knows what reuse is possible without how it is done.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.triton_backend.workload import Workload


@dataclass
class Remembered:
    """The prefixes whose blocks are in the cache, as long as the cache forgets nothing."""

    work: Workload
    prefixes: set[tuple[bytes | None, tuple[int, ...]]] = field(default_factory=set)
    """(domain, or None for common to all; tokens up to the end of a full block)."""
    closed: set[str] = field(default_factory=set)
    """Requests whose domain was erased while they lived: they find nothing and leave nothing."""
    forgets: bool = False
    """Whether anything was ever removed: from then on nothing is known."""

    def computed(self, sequence: Any) -> None:
        """Take note of what is computed of a sequence after a step."""
        request = sequence.request
        is_shared = request.store and self.work.settings["prefix_reuse"]
        if request.domain is None or not is_shared or request.request_id in self.closed:
            return
        for end in self.ends(sequence.num_computed):
            known = tuple(sequence.token_ids[:end])
            self.prefixes.add((self.owner(request, known), known))

    def admitted(self, sequence: Any) -> None:
        """Check what was reused for a sequence that runs for the first time."""
        domain, reused = sequence.request.domain, sequence.num_cached
        assert reused == sequence.num_computed, "tells other reuse than there is"
        has_donor = len(sequence.siblings) > 1
        if domain is None or not self.work.settings["prefix_reuse"]:
            assert has_donor or not reused, "reuses what it may not"
            return
        limit = sequence.num_known - 1
        if sequence.request.params.prompt_logprobs is not None and not sequence.choice:
            assert not reused, "log-probabilities of the prompt are missing"
            return
        assert reused <= limit, "nothing is left to compute"
        if self.forgets or sequence.request.request_id in self.closed:
            return
        known = tuple(sequence.token_ids)
        full = 0
        for end in self.ends(limit):
            if (self.owner(sequence.request, known[:end]), known[:end]) not in self.prefixes:
                break
            full = end
        assert reused >= full, "does not find what was computed"

    def ends(self, num_tokens: int) -> range:
        """Give the ends of the full blocks of so many tokens."""
        size = self.work.block_size
        return range(size, num_tokens + 1, size)

    def owner(self, request: Any, known: tuple[int, ...]) -> bytes | None:
        """Give whose block ends with `known`: common to all only in prompts that begin with all that is."""
        common = self.work.common
        begins = request.prompt_token_ids[: len(common)] == common
        is_common = begins and len(known) <= len(common)
        return None if is_common else request.domain
