"""Where a server listens, and whether it can."""

import contextlib
import os
import socket
from dataclasses import dataclass

from builder.errors import UserError


@dataclass(frozen=True, slots=True)
class Addresses:
    """One host, and the ports of Triton's three services."""

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def http(self) -> str:
        """`host:port` of the HTTP service."""
        return joined(self.host, self.http_port)

    @property
    def grpc(self) -> str:
        """`host:port` of the gRPC service."""
        return joined(self.host, self.grpc_port)

    @property
    def metrics(self) -> str:
        """`host:port` of the metrics service."""
        return joined(self.host, self.metrics_port)


def joined(host: str, port: int) -> str:
    """Write an address; an IPv6 host goes into brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def free_ports(host: str, wanted: dict[str, int]) -> dict[str, int]:
    """Give a port for every service named in `wanted`, choosing one where 0 is wanted.

    Triton loads every model before it tries its ports, so they are tried here first.

    Raises:
        UserError: a port is in use, or the host is not one of this machine's; the message names the service.
    """
    ports = {}
    with contextlib.ExitStack() as taken:
        for service, port in wanted.items():
            listener = taken.enter_context(listen(host, port, service))
            ports[service] = int(listener.getsockname()[1])
    return ports


def listen(host: str, port: int, service: str) -> socket.socket:
    """Listen on a port for `service`.

    Raises:
        UserError: the port is in use, or the host is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        is_name = isinstance(error, socket.gaierror)
        reason = error.strerror if is_name else os.strerror(error.errno or 0)
        raise UserError(
            f"the {service} service can't listen on {joined(host, port)}: {reason};"
            f" stop what listens there, or choose another --host or --{service}-port"
        ) from error
