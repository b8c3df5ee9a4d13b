"""One artifact for several targets: they share the KV cache's form, or are refused with the way out."""

from pathlib import Path

import pytest

from builder import pipeline
from builder.errors import UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets import TARGETS
from builder.targets.compiler import TargetOptions
from tests.models import tiny_llama


def request_of(folder: Path, **options: str) -> CompileRequest:
    model = str(tiny_llama(folder / "tiny"))
    return CompileRequest(model, targets=tuple(TARGETS), options=TargetOptions(**options))


def test_targets_that_keep_keys_and_values_otherwise_are_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    with pytest.raises(UnsupportedError, match="different forms; add --kv float32, or compile for"):
        pipeline.plan(request_of(tmp_path, quant="int8"))


def test_the_way_out_is_one(tmp_path: Path) -> None:
    plan = pipeline.plan(request_of(tmp_path, quant="int8", kv="float32"))
    assert [name for name, _ in plan.targets] == list(TARGETS)
