"""The float32 reference of a gate: what is refused before it is compiled."""

import shutil
from pathlib import Path

import pytest

from builder.errors import UserError
from builder.gate.reference import compiled_reference
from tests.built import Reports, compile_model
from tests.models import tiny_llama


def test_a_disk_too_small_for_the_reference_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama(tmp_path / "m")
    built = compile_model(model, tmp_path / "a")
    usage = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    reference = compiled_reference(str(model), built, max_seq_len=64, progress=Reports())
    with pytest.raises(UserError, match=r"has 0 MiB free, the float32 reference of the gate needs"):
        reference.__enter__()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "m"]
