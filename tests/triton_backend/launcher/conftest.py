"""A deployment of the tiny artifact."""

from pathlib import Path

import pytest

from triton_backend.launcher.deploy import Deployment


@pytest.fixture
def deployment(tiny_artifact: Path) -> Deployment:
    return Deployment("tiny", "vllm_model", tiny_artifact)
