"""Tags of tenants, and the file of the secret they are made under."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from builder.errors import UserError
from triton_backend import tenancy
from triton_backend.kv.domains import derive_domain
from triton_backend.tenancy import named_secret, read_secret, sign, verify, write_secret

SECRET = b"s" * 32
CLAIM: dict[str, Any] = {"tenant": "t", "request_id": "r-1", "expires_s": 100}


def is_valid(tag: str, *, secret: bytes = SECRET, now_s: float = 99.9, **change: Any) -> bool:
    return verify(secret, tag, now_s=now_s, **{**CLAIM, **change})


def test_a_tag_is_valid_for_what_was_signed() -> None:
    assert is_valid(sign(SECRET, **CLAIM))


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "u"},
        {"tenant": ""},
        {"request_id": "r-2"},
        {"expires_s": 101},
        {"secret": b"z" * 32},
        {"tenant": "tr", "request_id": "-1"},
        {"tenant": "t\0", "request_id": "r-1"},
    ],
)
def test_a_tag_is_valid_for_nothing_else(change: dict[str, Any]) -> None:
    assert not is_valid(sign(SECRET, **CLAIM), **change)


@pytest.mark.parametrize("tag", ["", "ab", "é" * 64, "A" * 64, "0" * 64])
def test_what_was_not_signed_is_not_valid(tag: str) -> None:
    assert not is_valid(tag)


def test_the_case_of_a_tag_counts() -> None:
    assert not is_valid(sign(SECRET, **CLAIM).upper())


@pytest.mark.parametrize(
    ("now_s", "valid"), [(0, True), (99.99, True), (100, False), (1e12, False)]
)
def test_a_tag_expires(now_s: float, *, valid: bool) -> None:
    assert is_valid(sign(SECRET, **CLAIM), now_s=now_s) is valid


def test_parts_of_a_claim_can_not_change_places() -> None:
    one = sign(SECRET, tenant="ab", request_id="c", expires_s=1)
    assert one != sign(SECRET, tenant="a", request_id="bc", expires_s=1)


def test_comparing_takes_the_same_time_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least it is left to the function that promises so."""
    asked: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        asked.append((one, other))
        return False

    monkeypatch.setattr(tenancy.hmac, "compare_digest", compare)
    assert not is_valid("ab")
    assert asked == [(sign(SECRET, **CLAIM).encode(), b"ab")]


def test_a_tag_is_no_domain_and_no_plain_hash() -> None:
    """All are made of the same secret and names."""
    tag = sign(SECRET, **CLAIM)
    assert tag != derive_domain(SECRET, "t", "r-1").hex()
    assert tag != hashlib.sha256(SECRET + b"t").hexdigest()


def test_a_secret_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secret = write_secret(tmp_path / "secret")
    finally:
        os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert len(secret) == 32
    assert read_secret(tmp_path / "secret") == secret


def test_each_secret_is_another(tmp_path: Path) -> None:
    assert write_secret(tmp_path / "a") != write_secret(tmp_path / "b")


def test_a_file_that_is_there_is_never_taken_for_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "secret")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_secret_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    write_secret(tmp_path / "secret")
    (tmp_path / "secret").chmod(mode)
    with pytest.raises(UserError, match=r"other users may use the secret .*; run chmod 600 /"):
        read_secret(tmp_path / "secret")


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_bytes(b"guess")
    with pytest.raises(UserError, match="must have at least 32 bytes; it has 5") as caught:
        read_secret(tmp_path / "secret")
    assert "guess" not in str(caught.value)


def test_a_secret_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read: No such file"):
        read_secret(tmp_path / "secret")


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({}, None),
        ({"FORERUN_SECRET_FILE": ""}, None),
        ({"FORERUN_SECRET_FILE": "/run/s"}, Path("/run/s")),
    ],
)
def test_an_environment_names_the_file(environment: dict[str, str], path: Path | None) -> None:
    assert named_secret(environment) == path
