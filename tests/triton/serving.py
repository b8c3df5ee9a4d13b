"""A served deployment for tests: compiled tiny model, repository, server, and what is known of its processes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.triton.clients import WAIT_S, Stream
from triton_backend.launcher import family
from triton_backend.launcher.addresses import Addresses, free_ports
from triton_backend.launcher.deploy import Deployment, deploy
from triton_backend.launcher.deployed import read_repository
from triton_backend.launcher.installation import find_installation
from triton_backend.launcher.server import LaunchPlan, TritonServer, running_server
from triton_backend.launcher.watch import StubWatch
from triton_backend.link import Link
from triton_backend.messages import VERSION, FromHost, Hello, Join, Ping, Pong
from triton_backend.rendezvous import connect

HOST = "127.0.0.1"
FORERUN = "tiny"
VLLM = "vllm_model"
DRAIN_S = 1.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Served:
    """A running server with a deployment under both faces: models FORERUN and VLLM."""

    server: TritonServer
    repository: Path
    addresses: Addresses

    def forerun(self) -> Stream:
        """Open a gRPC stream to the model with the `forerun` face."""
        return Stream(self.addresses.grpc, model=FORERUN, face="forerun")

    def vllm(self) -> Stream:
        """Open a gRPC stream to the model with the `vllm` face."""
        return Stream(self.addresses.grpc, model=VLLM, face="vllm")

    def add(self, artifact: Path, name: str, *, vllm_name: str) -> None:
        """Deploy another artifact and load its models."""
        deployment = Deployment(name, vllm_name, artifact)
        deploy(self.repository, deployment, replace_existing=False)
        for model in deployment.faces:
            self.server.mirror.add_front(self.repository / model)
        for model in deployment.faces:
            while not self.server.readiness.is_model_ready(model):
                self.server.check_alive()
                time.sleep(POLL_S)

    @property
    def stubs(self) -> dict[str, family.Process]:
        """The process of each front, by model."""
        return family.stubs_among(family.members(self.server.mark))

    def watch(self) -> StubWatch:
        """Watch the stubs, as builder serve does."""
        return StubWatch(self.server, (FORERUN, VLLM))

    @property
    def hosts(self) -> list[family.Process]:
        """The engine hosts."""
        return family.hosts_among(family.members(self.server.mark))

    def snapshot(self) -> Pong:
        """Join the engine host like a front, and ask how its engine is."""
        (host,) = self.hosts
        command = host.cmdline()
        connection = connect(Path(command[command.index("--socket") + 1]))
        assert connection is not None
        link: Link[FromHost] = Link(connection, FromHost)
        try:
            link.send(Join(VERSION, "test"))
            assert isinstance(link.receive(), Hello)
            link.send(Ping())
            pong = link.receive()
            assert isinstance(pong, Pong)
            return pong
        finally:
            link.close()

    def wait_idle(self) -> Pong:
        """Wait until no request runs or waits, and give the engine's state then."""
        deadline = time.monotonic() + WAIT_S
        while (pong := self.snapshot()).num_running + pong.num_waiting:
            assert time.monotonic() < deadline, pong
        return pong

    @property
    def leftovers(self) -> list[object]:
        """What lives or lies about of the server: processes, and regions of shared memory."""
        return [*family.members(self.server.mark), *family.regions(self.server.mark)]


def deployed(artifact: Path, repository: Path) -> Path:
    """Write a repository with both faces of an artifact, and give it."""
    deploy(repository, Deployment(FORERUN, VLLM, artifact), replace_existing=False)
    return repository


def launch_plan(repository: Path, *, drain_s: float = DRAIN_S) -> LaunchPlan:
    """Plan a server on free ports."""
    ports = free_ports(HOST, {"http": 0, "grpc": 0, "metrics": 0})
    read = read_repository(repository)
    return LaunchPlan(
        installation=find_installation(),
        repository=repository,
        fronts=tuple(front.model for front in read.fronts),
        others=read.others,
        addresses=Addresses(HOST, ports["http"], ports["grpc"], ports["metrics"]),
        drain_s=drain_s,
    )


@contextmanager
def serving(repository: Path, *, drain_s: float = DRAIN_S) -> Iterator[Served]:
    """Serve a repository; in the end, nothing of it may be left."""
    plan = launch_plan(repository, drain_s=drain_s)
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        served = Served(server, repository, plan.addresses)
        yield served
    assert served.leftovers == []
