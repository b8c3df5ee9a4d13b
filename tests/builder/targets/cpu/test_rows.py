"""Rows of every rounding, from every operation that writes them, to the bits of the references."""

import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from builder.artifact.store import Artifact
from builder.errors import ArtifactError
from builder.targets.cpu import native
from builder.targets.cpu.plan import Buffer, Form, Rows
from plugins.quantize.reference import (
    quantize,
    quantize_dynamic,
    quantize_fixed,
    quantize_fp4,
    quantize_fp8,
)
from tests.builder.targets.cpu.row_plan import (
    QUANTIZE,
    RELU,
    WIDTH,
    WRITERS,
    Float32,
    RowPlan,
    rounded,
)

FIXED = 0.013
Reference = Callable[[Float32, float], Float32]


def widened(numbers: np.ndarray, scales: Float32) -> Float32:
    """Give the numbers that int8 rows stand for."""
    return numbers * np.repeat(scales, numbers.shape[1] // scales.shape[1], axis=1)


def written(form: Form, group: int = 0, scale: float = 0.0) -> Buffer:
    return Buffer(Rows.TOKENS, form, WIDTH, group, scale)


ROUNDINGS: dict[str, tuple[Buffer, Reference]] = {
    "int8": (written(Form.INT8, 32), lambda rows, _: widened(*quantize(rows, 32))),
    "int8-fixed": (
        written(Form.INT8, 32, FIXED),
        lambda rows, scale: widened(*quantize_fixed(rows, 32, scale)),
    ),
    "e4m3": (written(Form.E4M3), lambda rows, _: quantize_dynamic(rows)),
    "e4m3-of-48": (written(Form.E4M3, 48), lambda rows, _: quantize_dynamic(rows, 48)),
    "e4m3-of-128": (written(Form.E4M3, 128), lambda rows, _: quantize_dynamic(rows, 128)),
    "e4m3-fixed": (written(Form.E4M3, 0, FIXED), quantize_fp8),
    "e2m1": (written(Form.E2M1, 16, FIXED), quantize_fp4),
}
IN_PARTS = ("int8", "int8-fixed")


def expected(name: str, rows: Float32, scale: float = FIXED) -> Float32:
    """Give what a plan hands out: a NaN anywhere in a row has spread over all of it."""
    want = ROUNDINGS[name][1](rows, np.float32(scale))
    want[np.isnan(want).any(axis=1)] = np.nan
    return want


def drawn() -> Float32:
    """Give rows of many sizes; the first have zeros, ties, numbers beyond all scales, and what is no number."""
    random = np.random.default_rng(0)
    sizes = np.exp(random.normal(size=(WIDTH, 1)) * 4) * np.exp(random.normal(size=(1, WIDTH)) * 2)
    rows = (random.normal(size=(WIDTH, WIDTH)) * sizes).astype(np.float32)
    rows[0] = 0
    rows[1, 32:64], rows[1, 100] = 0, -0.0
    halves = np.arange(-WIDTH, WIDTH, 2, dtype=np.float32) + 1
    rows[2, :WIDTH] = halves * np.float32(FIXED / 2)  # between two numbers of int8
    rows[3] = rows[4] = 0
    rows[3, :17] = np.float32(448 * FIXED) * np.arange(-8, 9) / 7
    rows[4, ::16], rows[4, 1::16] = 6, np.arange(10) / 4 + 0.25  # between two numbers of E2M1
    rows[5], rows[6] = 1e9, -1e9
    rows[7:10] *= np.float32(1e-12)
    rows[10, 3], rows[11, 40], rows[12, 159] = np.nan, np.inf, -np.inf
    return rows


@pytest.fixture(params=native.builds())
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("writer", WRITERS)
def test_rows_have_the_bits_of_the_reference(
    plain: Artifact, tmp_path: Path, writer: str, name: str
) -> None:
    if writer == "activation" and name not in IN_PARTS:
        return  # refused, see below
    operation, before = WRITERS[writer]
    rows = drawn()
    built = RowPlan(rows, ROUNDINGS[name][0], operation).artifact(plain, tmp_path)
    want = expected(name, before(rows))
    assert np.isnan(want[10:13]).all()
    assert np.isfinite(want).mean() > 0.9
    for build in native.builds():
        got = rounded(built, build)
        np.testing.assert_array_equal(got, want, err_msg=build)


@pytest.mark.parametrize("name", ROUNDINGS)
def test_rows_are_multiplied_by_factors_before_they_are_rounded(
    plain: Artifact, tmp_path: Path, build: str, name: str
) -> None:
    rows = drawn()
    factors = np.exp(np.random.default_rng(1).normal(size=WIDTH)).astype(np.float32)
    plan = RowPlan(rows, ROUNDINGS[name][0], factors=factors)
    got = rounded(plan.artifact(plain, tmp_path), build)
    np.testing.assert_array_equal(got, expected(name, rows * factors))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_rows_of_subnormal_numbers_have_the_bits_of_the_reference(
    plain: Artifact, tmp_path: Path, build: str, name: str
) -> None:
    buffer, _ = ROUNDINGS[name]
    scale = 2.0**-100 * 1.3 if buffer.scale else 0.0
    numbers = np.random.default_rng(2).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    rows = numbers * np.exp2(np.arange(-145, WIDTH - 145)[:, None].clip(max=-95)).astype(np.float32)
    plan = RowPlan(rows, replace(buffer, scale=scale), shift=-40)
    want = expected(name, rows, scale)
    assert len(np.unique(want)) > 4
    np.testing.assert_array_equal(rounded(plan.artifact(plain, tmp_path), build), want)


SIZES = st.floats(2.0**-30, 2.0**12, width=32) | st.just(0.0)
NUMBERS = SIZES | SIZES.map(lambda size: -size) | st.sampled_from([np.nan, np.inf, -np.inf])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=arrays(np.float32, (3, 48), elements=SIZES | NUMBERS, fill=st.just(0.0)),
    scale=st.floats(2.0**-20, 2.0**4, width=32),
    name=st.sampled_from(sorted(ROUNDINGS)),
    build=st.sampled_from(native.builds()),
)
def test_any_numbers_and_any_scale_are_rounded_as_the_reference_does(
    plain: Artifact,
    tmp_path_factory: pytest.TempPathFactory,
    rows: Float32,
    scale: float,
    name: str,
    build: str,
) -> None:
    buffer, _ = ROUNDINGS[name]
    whole = np.zeros((WIDTH, WIDTH), np.float32)
    whole[:3, :48] = rows
    plan = RowPlan(whole, replace(buffer, scale=scale if buffer.scale else 0.0))
    got = rounded(plan.artifact(plain, tmp_path_factory.mktemp("rows")), build)
    np.testing.assert_array_equal(got, expected(name, whole, scale))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_a_row_has_the_same_bits_whatever_else_is_in_its_step(
    plain: Artifact, tmp_path: Path, build: str, name: str
) -> None:
    built = RowPlan(drawn(), ROUNDINGS[name][0]).artifact(plain, tmp_path)
    want = rounded(built, build)
    for threads, chunk in ((1, WIDTH), (3, 7), (2, 1)):
        np.testing.assert_array_equal(rounded(built, build, threads=threads, chunk=chunk), want)


@pytest.mark.parametrize(
    "buffer",
    [
        written(Form.FLOAT32, 0, FIXED),
        written(Form.BFLOAT16, 0, FIXED),
        written(Form.FLOAT32, 16),
        written(Form.INT8, 32, -FIXED),
        written(Form.INT8, 32, float("nan")),
        written(Form.INT8, 32, float("inf")),
        written(Form.INT8, 32, 2.0**-101),
        written(Form.INT8, 32, 2.0**101),
        written(Form.INT8, 0, FIXED),
        written(Form.INT8, 64, FIXED),
        written(Form.INT4, 32),
        written(Form.E4M3, 24),
        written(Form.E4M3, -16),
        written(Form.E4M3, 128, FIXED),
        written(Form.E2M1, 16),
        written(Form.E2M1, 0, FIXED),
        written(Form.E2M1, 32, FIXED),
    ],
    ids=str,
)
def test_a_buffer_whose_form_group_and_scale_contradict_each_other_is_refused(
    plain: Artifact, tmp_path: Path, buffer: Buffer
) -> None:
    diagonal = ROUNDINGS["int8" if buffer.form == Form.INT8 else "e4m3"][0]
    built = RowPlan(drawn(), diagonal).artifact(plain, tmp_path)
    plan = built.path(built.manifest.engines[0].path)
    content = bytearray(plan.read_bytes())
    numbers = buffer.rows, buffer.form, buffer.width, buffer.group, buffer.scale
    struct.pack_into("<4if", content, 64 + 24, *numbers)
    plan.write_bytes(content)
    with pytest.raises(ArtifactError, match="buffer 1 can't be right"):
        rounded(built, "")


@pytest.mark.parametrize("name", sorted(set(ROUNDINGS) - set(IN_PARTS)))
def test_rows_that_are_rounded_as_a_whole_are_written_by_no_epilogue(
    plain: Artifact, tmp_path: Path, name: str
) -> None:
    assert not ROUNDINGS[name][0].takes_parts
    built = RowPlan(drawn(), ROUNDINGS[name][0], RELU).artifact(plain, tmp_path)
    with pytest.raises(ArtifactError, match="operation 1 can't be right"):
        rounded(built, "")


def test_rows_are_put_in_an_order_before_their_factors(
    plain: Artifact, tmp_path: Path, build: str
) -> None:
    random = np.random.default_rng(3)
    order = random.permutation(WIDTH).astype(np.int32)
    factors = random.uniform(0.5, 2, WIDTH).astype(np.float32)
    plan = RowPlan(drawn(), ROUNDINGS["int8"][0], factors=factors, order=order)
    got = rounded(plan.artifact(plain, tmp_path), build)
    np.testing.assert_array_equal(got, expected("int8", drawn()[:, order] * factors))


@pytest.mark.parametrize("index", [-1, WIDTH, 1 << 30])
def test_an_order_that_leaves_the_row_is_refused(
    plain: Artifact, tmp_path: Path, index: int
) -> None:
    order = np.arange(WIDTH, dtype=np.int32)
    order[-1] = index
    built = RowPlan(drawn(), ROUNDINGS["int8"][0], order=order).artifact(plain, tmp_path)
    with pytest.raises(ArtifactError, match="operation 1 can't be right"):
        rounded(built, "")


def test_an_order_of_too_few_numbers_is_refused(plain: Artifact, tmp_path: Path) -> None:
    order = np.arange(WIDTH - 16, dtype=np.int32)
    built = RowPlan(drawn(), ROUNDINGS["int8"][0], order=order).artifact(plain, tmp_path)
    with pytest.raises(ArtifactError, match="operation 1 can't be right"):
        rounded(built, "")


@pytest.mark.parametrize("factors", [np.ones(WIDTH - 16, np.float32), np.zeros(0, np.float32)])
def test_factors_of_too_few_numbers_are_refused(
    plain: Artifact, tmp_path: Path, factors: Float32
) -> None:
    built = RowPlan(drawn(), ROUNDINGS["e2m1"][0], factors=factors).artifact(plain, tmp_path)
    with pytest.raises(ArtifactError, match="operation 1 can't be right"):
        rounded(built, "")


@pytest.mark.parametrize("name", ["int8-fixed", "e2m1"])
def test_no_absurd_number_of_a_plan_reaches_memory_that_is_not_there(
    plain: Artifact, tmp_path: Path, name: str
) -> None:
    factors = np.ones(WIDTH, np.float32)
    built = RowPlan(drawn(), ROUNDINGS[name][0], QUANTIZE, factors).artifact(plain, tmp_path)
    plan = built.path(built.manifest.engines[0].path)
    whole, refused, places = plan.read_bytes(), 0, range(64, plan.stat().st_size, 4)
    for place, absurd in zip(places, cycle((-7, 1 << 20, 0x7FFFFFFF, 3, 16)), strict=False):
        content = bytearray(whole)
        struct.pack_into("<i", content, place, absurd)
        plan.write_bytes(content)
        try:
            rounded(built, "")
        except ArtifactError:
            refused += 1
    assert refused > len(places) // 4
