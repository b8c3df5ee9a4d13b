"""A deployment of the tiny artifact, and servers of a trivial model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.triton_backend.launcher.trivial import WAIT_S, trivial_plan, trivial_repository
from triton_backend.launcher.deploy import Deployment
from triton_backend.launcher.server import LaunchPlan, TritonServer, running_server


@pytest.fixture
def deployment(tiny_artifact: Path) -> Deployment:
    return Deployment("tiny", "vllm_model", tiny_artifact)


@pytest.fixture(scope="session")
def trivial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a repository whose one model is trivial; tests must not change it."""
    return trivial_repository(tmp_path_factory.mktemp("trivial") / "repository")


@pytest.fixture
def plan(trivial: Path) -> LaunchPlan:
    """Plan a server of the trivial model that ends at once."""
    return trivial_plan(trivial)


@pytest.fixture(scope="module")
def shared(trivial: Path) -> Iterator[tuple[TritonServer, LaunchPlan]]:
    """Start a server that tests only ask."""
    plan = trivial_plan(trivial)
    with running_server(plan) as server:
        server.wait_ready(WAIT_S)
        yield server, plan
