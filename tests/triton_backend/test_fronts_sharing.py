"""What fronts submit shares blocks within its tenant, over all fronts, and with nobody else."""

import time
from typing import Any

import msgspec

from tests.triton_backend.host_stage import SECRET, Stage, answer
from triton_backend.link import Link
from triton_backend.messages import Claim, FromHost, Submit, Terms, TokenIds
from triton_backend.request import SamplingParams
from triton_backend.tenancy import sign


def claimed(number: int, tenant: str, **terms: Any) -> Submit:
    """Submit a prompt of three blocks as somebody whom the shim vouches for."""
    expires_s, request_id = int(time.time()) + 60, f"r-{number}"
    tag = sign(SECRET, tenant=tenant, request_id=request_id, expires_s=expires_s)
    return Submit(
        number,
        TokenIds(tuple(range(12))),
        SamplingParams(temperature=0, max_tokens=1),
        Terms(claim=Claim(tenant, expires_s, tag), **terms),
        request_id,
    )


def num_cached(link: Link[FromHost], request: Submit) -> int:
    link.send(request)
    return answer(link, request.id)[-1].num_cached_tokens


def test_a_tenant_shares_with_itself_over_all_fronts_and_with_nobody_else(served: Stage) -> None:
    first, second = served.join(), served.join()
    assert num_cached(first, claimed(1, "alice")) == 0
    assert num_cached(second, claimed(1, "bob")) == 0
    assert num_cached(second, claimed(2, "alice")) > 0
    assert num_cached(first, claimed(2, "bob")) > 0


def test_without_a_tag_nothing_is_shared(served: Stage) -> None:
    link = served.join()
    assert num_cached(link, claimed(1, "alice")) == 0
    forged = claimed(2, "alice").terms
    for number in (3, 4):
        nobody = msgspec.structs.replace(claimed(number, "alice"), terms=Terms())
        assert num_cached(link, nobody) == 0
        replayed = msgspec.structs.replace(claimed(number + 10, "alice"), terms=forged)
        assert num_cached(link, replayed) == 0


def test_a_salt_narrows_what_is_shared(served: Stage) -> None:
    link = served.join()
    assert num_cached(link, claimed(1, "alice", cache_salt="a")) == 0
    assert num_cached(link, claimed(2, "alice")) == 0
    assert num_cached(link, claimed(3, "alice", cache_salt="b")) == 0
    assert num_cached(link, claimed(4, "alice", cache_salt="a")) > 0


def test_what_is_not_to_be_stored_is_not_found_again(served: Stage) -> None:
    link = served.join()
    assert num_cached(link, claimed(1, "alice", store=False)) == 0
    assert num_cached(link, claimed(2, "alice")) == 0
    assert num_cached(link, claimed(3, "alice", store=False)) > 0
