"""The queue: whoever ran before goes first, then the order of a policy, then that of arrival."""

from tests.triton_backend.making import make_sequence
from triton_backend.policies.policy import Policy, View
from triton_backend.sequence import Sequence
from triton_backend.waiting import Waiting

VIEW = View({}, lambda _: 0)


def by_priority(sequence: Sequence, view: View) -> float:
    return sequence.request.priority


def make_waiting(*sequences: Sequence, is_steady: bool = True) -> Waiting:
    waiting = Waiting(Policy(by_priority, is_steady=is_steady), VIEW)
    for sequence in sequences:
        waiting.add(sequence)
    return waiting


def ranked(name: str, priority: int) -> Sequence:
    return make_sequence(name, 1, about={"priority": priority})


def drain(waiting: Waiting) -> list[str]:
    names = []
    while waiting:
        sequence = waiting.next()
        waiting.remove(sequence)
        names.append(sequence.request.request_id)
    return names


def test_the_least_key_goes_first_and_of_equals_the_first_to_arrive() -> None:
    for is_steady in (True, False):
        waiting = make_waiting(
            *(ranked(name, priority) for name, priority in (("a", 1), ("b", 0), ("c", 0))),
            is_steady=is_steady,
        )
        assert drain(waiting) == ["b", "c", "a"]


def test_who_ran_before_goes_first_and_of_them_the_oldest() -> None:
    waiting = make_waiting(ranked("new", -5))
    for name in ("younger", "older"):
        sequence = ranked(name, 9)
        sequence.num_admissions = 1
        waiting.put_back(sequence)
    assert [each.request.request_id for each in waiting] == ["older", "younger", "new"]
    assert drain(waiting) == ["older", "younger", "new"]


def test_keys_that_change_count_as_they_are() -> None:
    served = {"x": 5, "y": 0}
    waiting = Waiting(
        Policy(lambda one, view: view.served[one.request.tenant], is_steady=False),
        View(served, lambda _: 0),
    )
    for tenant in "xy":
        waiting.add(make_sequence(tenant, 1, about={"tenant": tenant}))
    assert waiting.next().request.request_id == "y"
    served["y"] = 9
    assert waiting.next().request.request_id == "x"


def test_one_is_removed_from_wherever_it_waits() -> None:
    new, other, back = ranked("new", 0), ranked("other", 0), ranked("back", 0)
    waiting = make_waiting(other, new)
    back.num_admissions = 1
    waiting.put_back(back)
    waiting.remove(new)
    waiting.remove(back)
    assert (len(waiting), list(waiting)) == (1, [other])
