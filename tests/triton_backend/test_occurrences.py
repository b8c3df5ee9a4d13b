"""Ids are counted as a list is: whatever the answer, the drafts, and how it grew."""

from array import array
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from triton_backend.occurrences import Occurrences, distinct

IDS = st.lists(st.integers(0, 6), max_size=12)


def counted(occurrences: Occurrences, drafted: list[int]) -> dict[int, int]:
    ids, counts = occurrences.counts(drafted)
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


@given(IDS, st.lists(IDS, max_size=4), IDS)
def test_an_answer_that_grows_is_counted_as_a_whole(
    prompt: list[int], steps: list[list[int]], drafted: list[int]
) -> None:
    occurrences = Occurrences(distinct(prompt), num_prompt=len(prompt))
    known = array("i", prompt)
    for step in steps:
        known.extend(step)
        occurrences.read(known)
        occurrences.read(known)
    answer = known[len(prompt) :].tolist()
    assert counted(occurrences, []) == Counter(answer)
    assert counted(occurrences, drafted) == Counter(answer + drafted)
    assert counted(occurrences, []) == Counter(answer)
    assert occurrences.prompt_ids.tolist() == sorted(set(prompt))
    for token_id in range(8):
        assert occurrences.is_in_prompt(token_id) == (token_id in prompt)
        assert occurrences.is_in_answer(token_id) == (token_id in answer)


def test_a_step_reads_only_what_is_new() -> None:
    class Watched(array):  # type: ignore[type-arg]
        """Notes how many tokens are read."""

        num_read = 0

        def __getitem__(self, place):  # type: ignore[no-untyped-def]
            found = super().__getitem__(place)
            Watched.num_read += len(found)
            return found

    known = Watched("i", range(1000))
    occurrences = Occurrences(distinct(range(1000)), num_prompt=1000)
    for token_id in range(50):
        known.append(token_id)
        occurrences.read(known)
    assert Watched.num_read == 50
