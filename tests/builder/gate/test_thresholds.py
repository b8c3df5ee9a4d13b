"""Thresholds: a default for every format, files that change some, and what is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import UnsupportedError, UserError
from builder.gate.thresholds import DEFAULTS, KV_COSTS, default_thresholds, read_thresholds
from builder.quant import FORMATS

INT8 = DEFAULTS["int8"]


@pytest.mark.parametrize("name", ["float32", "bfloat16", *FORMATS])
def test_every_format_has_thresholds(name: str) -> None:
    assert default_thresholds(name, "bfloat16") == DEFAULTS[name]


def test_groups_of_another_size_are_held_to_the_same() -> None:
    assert default_thresholds("int8-g32", "bfloat16") == INT8
    assert default_thresholds("int8-channel", "float32") == INT8


@pytest.mark.parametrize("name", ["int4", "int4-g256", "fp8", "fp8-weight-only"])
def test_imported_checkpoints_are_held_to_the_thresholds_of_their_format(name: str) -> None:
    found = default_thresholds(f"{name} as in the checkpoint (gptq)", "bfloat16")
    assert found == DEFAULTS[name.removesuffix("-g256")]


@pytest.mark.parametrize("kv", ["int8", "int8-static", "fp8"])
def test_keys_and_values_in_8_bits_may_cost_something(kv: str) -> None:
    found = default_thresholds("int8", kv)
    assert found.max_kl_mean == INT8.max_kl_mean + KV_COSTS[kv].max_kl_mean
    assert found.min_agreement < INT8.min_agreement
    assert found.max_perplexity_ratio > INT8.max_perplexity_ratio


def test_a_format_without_thresholds_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="format int3 has no default thresholds; known"):
        default_thresholds("int3", "float32")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"min_agreement": 0.5, "max_kl_p99": 2}'),
        ("a.toml", "min_agreement = 0.5\nmax_kl_p99 = 2\n"),
    ],
)
def test_a_file_changes_what_it_names(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    expected = replace(INT8, min_agreement=0.5, max_kl_p99=2.0)
    assert read_thresholds(tmp_path / name, INT8) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"min_agreemnt": 1}', "unknown threshold 'min_agreemnt'. Did you mean min_agr"),
        (
            "a.json",
            '{"min_agreement": "high"}',
            "min_agreement must be a share from 0 to 1; got high",
        ),
        ("a.json", '{"min_agreement": true}', "must be a share"),
        ("a.json", '{"min_agreement": 98}', "must be a share from 0 to 1; got 98"),
        ("a.json", f'{{"max_kl_mean": 1{"0" * 400}}}', "must be a number from 0 on; got 1000"),
        (
            "a.json",
            '{"max_kl_mean": 1, "max_kl_mean": 9}',
            "no valid json: a name stands there twice",
        ),
        ("a.json", '{"min_agreement": -1}', "must be a share from 0 to 1; got -1"),
        ("a.json", '{"min_agreement": NaN}', "must be a share"),
        ("a.toml", "max_kl_mean = inf", "must be a number"),
        ("a.json", "[1]", "must be one object"),
        ("a.json", "{", "is no valid json"),
        ("a.json", "[" * 100_000, "is no valid json"),
        ("a.toml", "min_agreement", "is no valid toml"),
        ("a.yaml", "min_agreement: 1", "is neither .json nor .toml"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as refused:
        read_thresholds(tmp_path / name, INT8)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json can't be read: No such file"):
        read_thresholds(tmp_path / "none.json", INT8)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is no valid json"):
        read_thresholds(tmp_path / "a.json", INT8)
