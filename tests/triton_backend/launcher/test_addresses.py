"""Ports are tried before a server starts, and chosen where nobody cares."""

import socket

import pytest

from builder.errors import UserError
from triton_backend.launcher.addresses import Addresses, free_ports, joined, listen

LOOPBACK = "127.0.0.1"


def test_addresses_are_written_with_their_host() -> None:
    addresses = Addresses(LOOPBACK, 8000, 8001, 8002)
    assert (addresses.http, addresses.grpc, addresses.metrics) == (
        "127.0.0.1:8000",
        "127.0.0.1:8001",
        "127.0.0.1:8002",
    )


def test_an_ipv6_host_goes_into_brackets() -> None:
    assert joined("::1", 80) == "[::1]:80"


def test_zero_chooses_a_port_for_each_service() -> None:
    ports = free_ports(LOOPBACK, {"http": 0, "grpc": 0, "metrics": 0})
    assert len(set(ports.values())) == 3
    assert all(port > 0 for port in ports.values())


def test_a_chosen_port_is_free_again() -> None:
    ports = free_ports(LOOPBACK, {"http": 0})
    with listen(LOOPBACK, ports["http"], "http") as listener:
        assert listener.getsockname() == (LOOPBACK, ports["http"])


def test_a_port_in_use_is_refused_by_the_name_of_its_service() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError) as refusal:
            free_ports(LOOPBACK, {"http": 0, "grpc": port})
    assert str(refusal.value) == (
        f"the grpc service can't listen on 127.0.0.1:{port}: Address already in use;"
        " stop what listens there, or choose another --host or --grpc-port"
    )


def test_two_services_can_t_share_a_port() -> None:
    port = free_ports(LOOPBACK, {"http": 0})["http"]
    with pytest.raises(UserError, match="the grpc service can't listen"):
        free_ports(LOOPBACK, {"http": port, "grpc": port})


def test_a_host_of_another_machine_is_refused() -> None:
    with pytest.raises(UserError, match=r"can't listen on 192\.0\.2\.1:"):
        free_ports("192.0.2.1", {"http": 0})


def test_a_host_that_is_no_address_is_refused() -> None:
    with pytest.raises(UserError, match="can't listen on no-such-host"):
        free_ports("no-such-host.invalid", {"http": 0})
