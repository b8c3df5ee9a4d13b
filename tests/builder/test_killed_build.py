"""A build that is killed: nothing that loads is left, and the next build of the same destination cleans up."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builder.artifact.store import open_artifact
from builder.errors import ArtifactError
from tests.built import compile_model
from tests.models import tiny_llama

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.built import Reports, compile_model

class KillDuringWrite(Reports):
    def advance(self, amount):
        if self.stages[-1][0].startswith("write"):
            os.kill(os.getpid(), signal.SIGKILL)

compile_model(Path(sys.argv[1]), Path(sys.argv[2]), progress=KillDuringWrite())
"""


def test_sigkill_leaves_nothing_that_loads_and_the_next_build_cleans_up(tmp_path: Path) -> None:
    model, out = tiny_llama(tmp_path / "tiny"), tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, model, out], check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    (partial,) = (path for path in tmp_path.iterdir() if "partial" in path.name)
    with pytest.raises(ArtifactError, match=r"artifact\.json"):
        open_artifact(partial)
    open_artifact(compile_model(model, out).root)
    assert not partial.exists()
