"""A tiny int8 model, compiled for the native engine."""

import pytest

from builder.artifact.store import Artifact
from tests.built import compile_model
from tests.models import tiny_llama


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    folder = tmp_path_factory.mktemp("built") / "artifact"
    return compile_model(model, folder, quant="int8", max_num_seqs=256)
