"""One server for all tests that only ask; those that break things start their own by `own_triton`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.built import compile_model
from tests.models import tiny_llama
from tests.triton.engine_alone import EngineAlone, engine_alone
from tests.triton.serving import Served, deployed, serving

MAX_SEQ_LEN = 4096
"""Long enough for answers that run while a test looks at them."""


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a tiny Llama whose token ids are bytes; tests must not change it."""
    folder = tmp_path_factory.mktemp("tiny")
    checkpoint = tiny_llama(folder / "checkpoint", max_position_embeddings=MAX_SEQ_LEN)
    limits = {"max_seq_len": MAX_SEQ_LEN, "max_num_seqs": 32}
    compile_model(checkpoint, folder / "artifact", **limits)
    return folder / "artifact"


@pytest.fixture(scope="session")
def alone(tiny_artifact: Path) -> Iterator[EngineAlone]:
    """Load the tiny model in this process, to compare with."""
    with engine_alone(tiny_artifact) as engine:
        yield engine


@pytest.fixture(scope="session")
def triton(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the tiny model under both faces, for the whole run; nothing may be left of it in the end."""
    repository = deployed(tiny_artifact, tmp_path_factory.mktemp("triton") / "repository")
    with serving(repository) as served:
        yield served


@pytest.fixture
def own_triton(tiny_artifact: Path, tmp_path: Path) -> Iterator[Served]:
    """Serve the tiny model for one test, which may break what it likes."""
    with serving(deployed(tiny_artifact, tmp_path / "repository")) as served:
        yield served
