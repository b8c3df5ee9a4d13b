"""Weights that are kept in their bits: the engine gives the bits that the float32 numbers give, which they stand for."""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from builder.artifact.store import Artifact
from builder.checkpoint.groups import num_groups
from builder.errors import UnsupportedError
from builder.quant import fp8_weight_only
from builder.quant.floats import E2M1, E4M3, E8M0, LARGEST, rounded
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.panels import Parts, to_panels
from builder.targets.cpu.plan import Code, Form
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import BUFFER, HEADER, WEIGHT, PlanRunner, Weight
from tests.builder.targets.cpu.test_bad_plans import PlanBytes
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

SIZES = {"hidden_size": 48, "head_dim": 12, "intermediate_size": 150}
"""Odd ones, so that the last group of a row is cut short."""
FORMS = {
    "e4m3": (Form.E4M3, 0),
    "e4m3-g128": (Form.E4M3, 128),
    "e2m1-g16": (Form.E2M1, 16),
    "e2m1-g32": (Form.E2M1, 32),
    "int8": (Form.WIDENED_INT8, 0),
    "int8-g64": (Form.WIDENED_INT8, 64),
}


def narrowed(weight: np.ndarray, form: Form, group: int) -> Parts:
    """Round a weight to a form, each output with scales of its own."""
    size_out, size_in = weight.shape
    count = num_groups(size_in, group)
    filled = np.zeros((size_out, count * (group or size_in)), np.float32)
    filled[:, :size_in] = weight
    groups = filled.reshape(size_out, count, -1)
    peaks = np.abs(groups).max(axis=2)

    def in_units(scales: np.ndarray, kind: type) -> np.ndarray:
        units = groups / scales.astype(np.float32)[:, :, None]
        numbers = np.round(units).astype(kind) if kind is np.int8 else rounded(units, kind)
        return numbers.reshape(size_out, -1)[:, :size_in]

    if form == Form.E2M1 and group == 32:
        powers = (2.0 ** np.ceil(np.log2(peaks / LARGEST[E2M1]))).astype(E8M0)
        return in_units(powers, E2M1), powers
    if form == Form.E2M1:
        factors = peaks.max(axis=1, keepdims=True) / np.float32(LARGEST[E2M1] * LARGEST[E4M3])
        scales = rounded(peaks / np.float32(LARGEST[E2M1]) / factors, E4M3)
        return in_units(scales.astype(np.float32) * factors, E2M1), scales, factors
    kind = np.int8 if form == Form.WIDENED_INT8 else E4M3
    scales = peaks / np.float32(LARGEST.get(kind, 127))
    return in_units(scales, kind), scales


def with_weights(artifact: Artifact, folder: Path, replaced: dict[int, Weight]) -> Artifact:
    """Copy an artifact, some weights replaced by others of the same sizes."""
    (record,) = artifact.manifest.engines
    plan = bytearray(artifact.path(record.path).read_bytes())
    first = HEADER.size + BUFFER.size * HEADER.unpack_from(plan)[2]
    packed = b""
    for index, old in enumerate(PlanRunner(artifact).weights):
        new, data = replaced.get(index, old), b""
        data = new.data.tobytes()
        place = first + WEIGHT.size * index
        sizes = (new.form, new.group, new.size_out, new.size_in)
        WEIGHT.pack_into(plan, place, len(packed), len(data), *sizes)
        packed += data + bytes(-len(data) % 64)
    struct.pack_into("<q", plan, HEADER.size - 16, len(packed))
    for name, content in ((record.path, bytes(plan)), (str(record.weights), packed)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
    return Artifact(folder, artifact.manifest)


def kept_and_widened(artifact: Artifact, folder: Path, name: str) -> tuple[Artifact, Artifact]:
    """Give a float32 artifact with the weights of its layers in a form, and with the float32 numbers of that form."""
    (form, group), runner = FORMS[name], PlanRunner(artifact)
    layers = {op["weight"] for op in runner.operations if op["code"] == Code.LINEAR}
    layers -= {op["weight"] for op in runner.operations if op["code"] == Code.EMBEDDING}
    kept, widened = {}, {}
    for index in layers:
        old = runner.weights[index]
        sizes = (old.size_out, old.size_in)
        weight, _ = old.matrix(1)
        parts = narrowed(weight + np.float32(1e-30), form, group)  # a row of zeros has no scale
        kept[index] = Weight(form, group, *sizes, to_panels(form, group, parts))
        numbers, _ = kept[index].matrix(1)
        panels = to_panels(Form.FLOAT32, 0, (numbers,))
        widened[index] = Weight(Form.FLOAT32, 0, *sizes, panels)
    assert len(layers) >= 4
    return tuple(
        with_weights(artifact, folder / kind, replaced)
        for kind, replaced in (("kept", kept), ("widened", widened))
    )


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"), **SIZES)
    return compile_model(model, tmp_path_factory.mktemp("built") / "out", max_num_seqs=512)


@pytest.fixture(scope="module", params=FORMS)
def pair(
    floats: Artifact, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Artifact, Artifact]:
    return kept_and_widened(floats, tmp_path_factory.mktemp("pair"), request.param)


@pytest.fixture(params=native.builds())
def runners(
    pair: tuple[Artifact, Artifact], request: pytest.FixtureRequest
) -> Iterator[list[PagedRunner]]:
    opened = [
        CpuExecutor(one, one.manifest.engines[0], num_threads=2, build=request.param)
        for one in pair
    ]
    yield [PagedRunner(executor) for executor in opened]
    for executor in opened:
        executor.close()


def test_logits_have_the_bits_of_float32_weights_for_every_number_of_rows(
    runners: list[PagedRunner],
) -> None:
    kept, widened = runners
    tokens = draw(70)
    want = widened.whole(tokens)
    assert np.isfinite(want).all()
    for chunk in (1, 2, 3, 7, 16, 70):
        np.testing.assert_array_equal(kept.whole(tokens, chunk), want)


@pytest.mark.parametrize("name", ["e4m3", "e2m1-g16"])
def test_rows_too_wide_to_widen_a_panel_of_have_the_same_bits(name: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "head_dim": 8, "intermediate_size": 16000, "num_hidden_layers": 1}
    model = tiny_llama(tmp_path / "model", **sizes)
    built = compile_model(model, tmp_path / "built", max_num_seqs=64)
    got = []
    for one in kept_and_widened(built, tmp_path, name):
        executor = CpuExecutor(one, one.manifest.engines[0], num_threads=1)
        got.append(PagedRunner(executor).whole(draw(20)))
        executor.close()
    np.testing.assert_array_equal(*got)


@pytest.mark.parametrize(
    ("form", "group"),
    [(Form.E4M3, 8), (Form.E4M3, -16), (Form.WIDENED_INT8, 24), (Form.E2M1, 0), (Form.E2M1, 64)],
)
def test_groups_that_no_kernel_reads_are_refused(
    form: Form, group: int, floats: Artifact, tmp_path: Path
) -> None:
    plan = PlanBytes(floats)
    plan.set_weight_form(plan.get(Code.LINEAR, "weight"), form, group)
    assert "weight" in plan.refused(tmp_path)


@pytest.mark.parametrize("name", FORMS)
def test_a_weight_that_ends_before_its_last_panel_is_refused(
    name: str, floats: Artifact, tmp_path: Path
) -> None:
    form, group = FORMS[name]
    plan = PlanBytes(floats)
    index = plan.get(Code.LINEAR, "weight")
    weight = PlanRunner(floats).weights[index]
    numbers, _ = weight.matrix(1)
    size = len(to_panels(form, group, narrowed(numbers + np.float32(1e-30), form, group)))
    plan.set_weight_form(index, form, group)
    plan.set_weight_bytes(index, size - 64)
    assert "operation" in plan.refused(tmp_path)


@pytest.mark.parametrize("form", [Form.E4M3, Form.E2M1, Form.WIDENED_INT8])
def test_a_plan_whose_embedding_table_is_widened_is_refused(
    form: Form, floats: Artifact, tmp_path: Path
) -> None:
    plan = PlanBytes(floats)
    plan.set_weight_form(plan.get(Code.EMBEDDING, "weight"), form, 32)
    assert "operation" in plan.refused(tmp_path)


def test_an_embedding_table_of_e4m3_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fp8_weight_only, "HEAD", fp8_weight_only.NAME)
    model = tiny_llama(tmp_path / "model")
    named = r"can't look up tokens in model\.embed_tokens\.weight, which is float8e4m3fn"
    with pytest.raises(UnsupportedError, match=named):
        compile_model(model, tmp_path / "built", quant=fp8_weight_only.NAME)
