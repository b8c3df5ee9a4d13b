"""Limits: derived from the model, checked when given."""

import dataclasses

import pytest

from builder import archs, limits
from builder.artifact.config import KVGeometry, KVGroup
from builder.errors import UserError
from builder.limits import LimitOptions
from builder.quant.plan import Precision
from tests.models import tiny_config

CONFIG = archs.read_config(tiny_config())
KV = KVGeometry(16, (KVGroup((0, 1), 2, 16, "float32"),))


def derive(**options: int) -> limits.Limits:
    return limits.derive(LimitOptions(**options), CONFIG, KV)


def test_a_model_gives_its_own_limits() -> None:
    found = derive()
    assert found.max_seq_len == CONFIG.max_positions
    assert found.max_logit_rows == found.max_num_seqs == limits.DEFAULT_NUM_SEQS
    assert (found.num_blocks - 1) * 16 == limits.DEFAULT_NUM_SEQS * limits.POOLED_TOKENS_PER_SEQ


def test_quantized_keys_and_values_have_a_scale_per_token_and_head() -> None:
    group = KVGroup((0, 1), 2, 16, "int8")
    assert group.bytes_per_token == 2 * 2 * 2 * (16 + 4)


def test_bytes_per_token_count_keys_and_values_of_all_layers() -> None:
    assert KV.bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert KV.bytes_per_block == 16 * KV.bytes_per_token


def test_the_pool_is_cut_from_the_bytes_given_and_block_zero_comes_on_top() -> None:
    assert derive(kv_cache_bytes=40 * KV.bytes_per_block + 1).num_blocks == 41


def test_a_pool_too_small_for_one_sequence_is_refused_with_both_numbers() -> None:
    with pytest.raises(UserError, match=r"--kv-cache-bytes 1000 .*--max-seq-len 512"):
        derive(kv_cache_bytes=1000)


def test_a_shorter_length_fits_a_smaller_pool() -> None:
    assert derive(kv_cache_bytes=4 * KV.bytes_per_block, max_seq_len=64).num_blocks == 5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_seq_len", 1),
        ("max_seq_len", 513),
        ("max_num_seqs", 0),
        ("max_num_seqs", 5000),
        ("max_num_tokens", 31),
        ("max_num_tokens", 1 << 18),
    ],
)
def test_a_limit_out_of_range_is_refused_by_its_option(option: str, value: int) -> None:
    with pytest.raises(UserError, match=f"--{option.replace('_', '-')} {value} "):
        derive(**{option: value})


def test_the_token_budget_covers_one_token_of_every_sequence() -> None:
    assert derive(max_num_seqs=1000).max_num_tokens == 1000


@pytest.mark.parametrize("size", [0, 1, 12, 256])
def test_other_block_sizes_are_refused(size: int) -> None:
    with pytest.raises(UserError, match="--block-size"):
        limits.check_block_size(LimitOptions(block_size=size), ["portable"])


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("targets", [["cpu"], ["portable", "cpu"]])
def test_the_block_sizes_that_are_offered_are_those_of_all_targets(
    targets: list[str], size: int
) -> None:
    named = (
        f"--block-size {size} is not supported for target {', '.join(targets)}; choose one of 16,"
    )
    with pytest.raises(UserError, match=named):
        limits.check_block_size(LimitOptions(block_size=size), targets)
    assert limits.check_block_size(LimitOptions(block_size=8), ["portable"]) == 8
    assert limits.check_block_size(LimitOptions(block_size=32), targets) == 32


def test_too_many_blocks_for_int32_slots_are_refused_with_the_most_there_may_be() -> None:
    most = limits.MAX_BLOCKS * KV.bytes_per_block
    with pytest.raises(UserError, match=f"at most {most}, or raise --block-size"):
        derive(kv_cache_bytes=most + KV.bytes_per_block)
    num_blocks = derive(kv_cache_bytes=most).num_blocks
    assert num_blocks * max(limits.BLOCK_SIZES) < 1 << 31
    assert (num_blocks + 1) * max(limits.BLOCK_SIZES) == 1 << 31


def test_too_small_a_token_budget_says_that_fewer_sequences_help() -> None:
    with pytest.raises(UserError, match="one at least for each of --max-num-seqs 32: lowering"):
        derive(max_num_tokens=1)


def test_int8_needs_about_a_quarter_of_the_weights() -> None:
    wide = limits.estimate(CONFIG, derive(), Precision("float32"), target="cpu")
    narrow = limits.estimate(CONFIG, derive(), Precision("int8", 32), target="cpu")
    assert 0.25 < narrow.weights_bytes / wide.weights_bytes < 0.4
    assert narrow.peak_bytes < wide.peak_bytes


def test_emulated_formats_need_the_bytes_of_their_bits() -> None:
    config = dataclasses.replace(CONFIG, hidden_size=1024, intermediate_size=2048)
    none, fp8, nvfp4, mxfp4 = (
        limits.estimate(config, derive(), precision, target="cpu").weights_bytes
        for precision in map(Precision, ("float32", "fp8", "nvfp4", "mxfp4"), (0, 0, 16, 32))
    )
    linear = limits._count_linear(config, 1, "cpu")
    outputs = linear // config.hidden_size  # and no more: the inner size is larger
    assert none - fp8 == 3 * linear - 4 * outputs
    assert fp8 - nvfp4 == linear * (1 - 0.5 - 1 / 16)
    assert nvfp4 - mxfp4 == linear / 32 + 4 * outputs


def test_fewer_bits_and_larger_groups_need_fewer_bytes() -> None:
    precisions = [
        Precision("float32"),
        Precision("bfloat16"),
        Precision("int8", 32),
        Precision("int8", 0),
        Precision("uint4", 32),
        Precision("int4", 32),
        Precision("int4", 128),
    ]
    config = dataclasses.replace(CONFIG, hidden_size=1024, intermediate_size=2048)
    sizes = [
        limits.estimate(config, derive(), precision, target="cpu").weights_bytes
        for precision in precisions
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
