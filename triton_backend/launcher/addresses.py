"""Where a server listens, and whether it can. Triton itself takes an IPv4 address and nothing else."""

import contextlib
import ipaddress
import os
import socket
from dataclasses import dataclass

from builder.errors import UserError

BROADCAST = ipaddress.IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Addresses:
    """One host, and the ports of Triton's three services."""

    host: str
    """An IPv4 address."""
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
    """Write an address."""
    return f"{host}:{port}"


def find_host(name: str) -> str:
    """Give the IPv4 address that `name` is or means; the first, where it means several.

    Raises:
        UserError: there is none that a service could listen on.
    """
    if ":" in name:
        raise UserError(f"--host can't be the IPv6 address {name}: Triton listens on IPv4 only")
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError):  # the second for what can't be a name at all
        found = []
    addresses = [ipaddress.IPv4Address(address[0]) for *_, address in found]
    usable = [str(each) for each in addresses if not (each.is_multicast or each == BROADCAST)]
    if not usable:
        raise UserError(
            f"--host must be an IPv4 address of this machine, or a name of one, such as 127.0.0.1; got {name[:200]!r}"
        )
    return usable[0]


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
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise UserError(
            f"the {service} service can't listen on {joined(host, port)}: {os.strerror(error.errno or 0)};"
            f" stop what listens there, or choose another --host or --{service}-port"
        ) from error
