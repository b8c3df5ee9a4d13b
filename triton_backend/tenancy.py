"""Who a request says it comes from, and how the engine host can believe it: tags under a deployment's secret.

The shim checks a caller's key, and signs for the caller's tenant; a client that talks to Triton itself has no
secret, so it can be nobody. The secret is in a file that its owner alone can read; only its path is ever told.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from builder.errors import UserError

SECRET_BYTES = 32
SECRET_VARIABLE = "FORERUN_SECRET_FILE"  # noqa: S105 (the name of a variable)
"""Environment variable of a server and of its fronts: the path of the deployment's secret."""
ANONYMOUS = "anonymous"
"""The tenant of those who need no key."""
_PURPOSE = b"forerun tenant tag 1"
"""Keeps tags apart from all else that is derived from the secret."""


def sign(secret: bytes, *, tenant: str, request_id: str, expires_s: int) -> str:
    """Give the tag that says: this request is of this tenant, until so many seconds since the epoch."""
    parts = (_PURPOSE, tenant.encode(), request_id.encode(), str(expires_s).encode())
    # Each with its length: else ("ab", "c") and ("a", "bc") would have one tag.
    content = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hmac.digest(secret, content, "sha256").hex()


def verify(
    secret: bytes, tag: str, *, tenant: str, request_id: str, expires_s: int, now_s: float
) -> bool:
    """Tell whether a tag was signed for just this, and has not expired; takes the same time for every wrong tag."""
    right = sign(secret, tenant=tenant, request_id=request_id, expires_s=expires_s)
    # As bytes: of strings, only ASCII can be compared so.
    return hmac.compare_digest(right.encode(), tag.encode()) and now_s < expires_s


def write_secret(path: Path) -> bytes:
    """Draw a secret and write it to a new file that only its owner can read.

    Raises:
        OSError: there is such a file, or it can't be written.
    """
    secret = secrets.token_bytes(SECRET_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    return secret


def read_secret(path: Path) -> bytes:
    """Read a secret back.

    Raises:
        UserError: there is no such file, others may read or write it, or it is too short.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read()
    except OSError as error:
        raise UserError(
            f"the secret of the deployment at {path} can't be read: {error.strerror}"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise UserError(f"other users may use the secret of the deployment; run chmod 600 {path}")
    if len(secret) < SECRET_BYTES:
        raise UserError(
            f"the secret of the deployment at {path} must have at least {SECRET_BYTES} bytes; "
            f"it has {len(secret)}"
        )
    return secret


def named_secret(environment: Mapping[str, str]) -> Path | None:
    """Give the path of the secret that an environment names; None where there is no secret."""
    path = environment.get(SECRET_VARIABLE)
    return Path(path) if path else None
