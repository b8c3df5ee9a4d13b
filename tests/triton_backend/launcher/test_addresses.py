"""Ports are tried before a server starts, and chosen where nobody cares."""

import socket

import pytest

from builder.errors import UserError
from triton_backend.launcher.addresses import Addresses, find_host, free_ports, listen

LOOPBACK = "127.0.0.1"


def test_addresses_are_written_with_their_host() -> None:
    addresses = Addresses(LOOPBACK, 8000, 8001, 8002)
    assert (addresses.http, addresses.grpc, addresses.metrics) == (
        "127.0.0.1:8000",
        "127.0.0.1:8001",
        "127.0.0.1:8002",
    )


@pytest.mark.parametrize(
    ("name", "address"),
    [("127.0.0.1", LOOPBACK), ("localhost", LOOPBACK), ("0.0.0.0", "0.0.0.0"), ("127.1", LOOPBACK)],  # noqa: S104
)
def test_a_host_is_one_ipv4_address(name: str, address: str) -> None:
    assert find_host(name) == address


@pytest.mark.parametrize("name", ["::1", "::", "fe80::1%lo"])
def test_ipv6_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=f"--host can't be the IPv6 address {name}: Triton listens"):
        find_host(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "300.1.1.1",
        "255.255.255.255",
        "224.0.0.1",
        "no-such-host.invalid",
        "a" * 300,
        "\udcff",
    ],
)
def test_what_no_service_could_listen_on_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="--host must be an IPv4 address of this machine"):
        find_host(name)


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
