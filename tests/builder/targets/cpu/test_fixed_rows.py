"""A whole model whose int8 rows have one fixed scale: attention and gates write them in parts."""

import struct
from pathlib import Path

import numpy as np

from builder.artifact.store import Artifact
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.plan import Code, Form
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner


def with_fixed_scales(artifact: Artifact, folder: Path, scale: float) -> Artifact:
    """Copy an artifact with a plan whose int8 rows all have one scale."""
    (record,) = artifact.manifest.engines
    content = bytearray(artifact.path(record.path).read_bytes())
    for place in range(64, 64 + 24 * len(PlanRunner(artifact).buffers), 24):
        if struct.unpack_from("<i", content, place + 4)[0] == Form.INT8:
            struct.pack_into("<f", content, place + 16, scale)
    for name in (record.path, str(record.weights)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(artifact.path(name).read_bytes())
    (folder / record.path).write_bytes(content)
    return Artifact(folder, artifact.manifest)


def test_attention_and_gates_write_rows_of_a_fixed_scale(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "head_dim": 64, "num_attention_heads": 2, "intermediate_size": 128}
    model = tiny_llama(tmp_path / "model", num_key_value_heads=1, **sizes)
    dynamic = compile_model(model, tmp_path / "built", quant="int8", group=32, max_num_seqs=64)
    built = with_fixed_scales(dynamic, tmp_path / "fixed", 0.02)
    assert Code.QUANTIZE not in {op["code"] for op in PlanRunner(built).operations}
    tokens = draw(60)
    want, other = (PlanRunner(artifact).logits(tokens) for artifact in (built, dynamic))
    for build in native.builds():
        executor = CpuExecutor(built, built.manifest.engines[0], num_threads=2, build=build)
        got = PagedRunner(executor).whole(tokens)
        np.testing.assert_array_equal(PagedRunner(executor).whole(tokens, 7), got)
        executor.close()
        # A number that lies between two steps may go either way; and scales that come from rows are another thing.
        assert np.abs(got - want).mean() < 0.3 * np.abs(other - want).mean()
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999
