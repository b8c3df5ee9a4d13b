"""How the shim vouches for its callers before the engine host: a tag per request, under the deployment's secret."""

from collections.abc import Callable
from dataclasses import dataclass, field

from triton_backend.tenancy import sign

TAG_LIFE_S = 300
"""For a request that waits to be read by a busy host; what comes later is served, and shares no blocks."""


@dataclass(frozen=True, slots=True)
class Vouching:
    """Signs for tenants."""

    secret: bytes = field(repr=False)
    clock: Callable[[], float]
    """Seconds since the epoch."""

    def parameters(self, tenant: str, request_id: str) -> dict[str, str | int]:
        """Give the request parameters that say whose a request is; none without a secret."""
        if not self.secret:
            return {}
        expires_s = int(self.clock()) + TAG_LIFE_S
        tag = sign(self.secret, tenant=tenant, request_id=request_id, expires_s=expires_s)
        return {"tenant": tenant, "tenant_expires": expires_s, "tenant_tag": tag}
