"""Seeded bugs in what the choices of a request share, and in what each of them counts for itself.

Three more went unseen by the workloads, and are seen by tests of their modules: drafts that are not counted for penalties,
a draft that may lead though its presence is penalised, and a drafter that never looks at its own answer.
"""

from tests.seeded_bugs.copies import Patch

SHARED_BUGS = {
    "what was counted is counted again": Patch(
        "occurrences", "        self._num_read = len(token_ids)\n", ""
    ),
    "an id of the prompt may lead where repetition is penalised": Patch(
        "sampling.penalties", "not self.occurrences.is_in_prompt(token_id)", "True"
    ),
    "a sibling's answer is counted too": Patch(
        "intake",
        "Occurrences(ids, num_prompt=num_prompt)",
        "siblings[0].occurrences if siblings else Occurrences(ids, num_prompt=num_prompt)",
    ),
    "runs of the prompt are found one place late": Patch(
        "drafting", "len(keys) - 1 - from_end + length", "len(keys) - from_end + length"
    ),
    "a choice drafts by what another said": Patch(
        "intake",
        "Drafter(runs)",
        "(siblings[0].drafter if siblings else Drafter(runs))",
    ),
    "the ids of a prompt are those of its first token": Patch(
        "intake", "distinct(prompt) if", "distinct(prompt[:1]) if"
    ),
}
