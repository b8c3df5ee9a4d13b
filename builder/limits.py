"""What an engine is compiled for, derived from the model unless the user says otherwise, and what that costs."""

from collections.abc import Collection
from dataclasses import dataclass

from builder.artifact.config import ELEMENT_BYTES, KVGeometry, Limits, ModelConfig
from builder.checkpoint.groups import CHANNEL
from builder.errors import UserError
from builder.quant import FORMATS, is_emulated
from builder.quant.plan import Precision

DEFAULT_BLOCK_SIZE = 16
DEFAULT_NUM_SEQS = 32
DEFAULT_NUM_TOKENS = 512
POOLED_TOKENS_PER_SEQ = 512
"""Pools hold one sequence of full length, or this many tokens for each of `max_num_seqs`, whichever is more."""
BLOCK_SIZES = (8, 16, 32, 64, 128)
BLOCK_RUNS = {"cpu": 16}
"""Tokens that lie together, of which a block holds whole runs, by target."""
MAX_BLOCKS = (1 << 24) - 2
"""Beside the one for padding; more would make slots overflow int32 at the largest block size."""
MAX_NUM_SEQS = 4096
MAX_NUM_TOKENS = 1 << 17
RUNTIME_BYTES = 250 << 20
"""What Python and the libraries that compile take by themselves (measured: 180 to 230 MiB)."""


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits as the user gave them; None leaves one to be derived."""

    max_seq_len: int | None = None
    max_num_seqs: int | None = None
    max_num_tokens: int | None = None
    block_size: int | None = None
    kv_cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a build will take."""

    weights_bytes: int
    """Weights in the engine."""
    disk_bytes: int
    """The whole artifact."""
    peak_bytes: int
    """Resident memory of the build at its worst: when the finished engine is loaded to be tried."""


def check_block_size(options: LimitOptions, targets: Collection[str]) -> int:
    """Give the block size in tokens.

    Raises:
        UserError: it is not one of those that all targets support.
    """
    block_size = DEFAULT_BLOCK_SIZE if options.block_size is None else options.block_size
    runs = [BLOCK_RUNS.get(target, 1) for target in targets]
    supported = [size for size in BLOCK_SIZES if not any(size % run for run in runs)]
    if block_size not in supported:
        raise UserError(
            f"--block-size {block_size} is not supported for target {', '.join(targets)}; "
            f"choose one of {', '.join(map(str, supported))}"
        )
    return block_size


def derive(options: LimitOptions, config: ModelConfig, kv: KVGeometry) -> Limits:
    """Fill in what the user left open, and check what they gave.

    Raises:
        UserError: a limit is out of range, or the pool can't hold one sequence of full length.
    """
    max_seq_len = _within(
        "--max-seq-len", options.max_seq_len, config.max_positions, (2, config.max_positions)
    )
    max_num_seqs = _within(
        "--max-num-seqs", options.max_num_seqs, DEFAULT_NUM_SEQS, (1, MAX_NUM_SEQS)
    )
    default_tokens = max(DEFAULT_NUM_TOKENS, max_num_seqs)
    allowed = (max_num_seqs, MAX_NUM_TOKENS)
    max_num_tokens = _within(
        "--max-num-tokens",
        options.max_num_tokens,
        default_tokens,
        allowed,
        because=f", one at least for each of --max-num-seqs {max_num_seqs}: lowering that helps",
    )
    return Limits(
        max_seq_len=max_seq_len,
        max_num_seqs=max_num_seqs,
        max_num_tokens=max_num_tokens,
        max_logit_rows=max_num_seqs,
        num_blocks=1 + _num_blocks(options.kv_cache_bytes, max_seq_len, max_num_seqs, kv=kv),
    )


PANELS = {"cpu": 16}
"""Outputs that are padded to a multiple of so many, by target."""
SCALE_BYTES = {"cpu": 2}
"""Bytes of a weight scale, by target."""
ELEMENT_SCALE_BYTES = {"FLOAT": 4, "FLOAT8E4M3FN": 1, "FLOAT8E8M0": 1}
WIDENED = ("portable",)
"""Targets that hold what they emulate as float32 in memory."""


def estimate(
    config: ModelConfig,
    limits: Limits,
    precision: Precision,
    *,
    target: str,
    ends: Precision | None = None,
) -> Estimate:
    """Estimate a build for one target from the model's sizes.

    `ends` is the precision of head and embedding table where it is not the one that goes with the layers'; then nothing
    is rotated, so a tied head stays one with the table.
    """
    widens = target in WIDENED and is_emulated(precision.name, target)
    rules = FORMATS.get(precision.name)
    is_rotated = ends is None and rules is not None and rules.IS_ROTATED
    if ends is None:
        has_own = rules is not None and precision.name != rules.HEAD
        ends = Precision(rules.HEAD, rules.HEAD_GROUP) if rules and has_own else precision
    linear = _count_linear(config, precision.group or 1, target)
    table = _padded(config.vocab_size, PANELS.get(target, 1)) * _padded(
        config.hidden_size, ends.group or 1
    )
    per_weight, per_head = (_weight_bytes(one, target) for one in (precision, ends))
    shares = config.tied_head and not is_rotated
    tables, rest = table if shares else 2 * table, _count_rest(config)
    rope_bytes = 4 * limits.max_seq_len * config.head_dim
    weights_bytes = int(linear * per_weight + tables * per_head) + 4 * rest + rope_bytes
    weights_bytes += linear // config.hidden_size * _output_bytes(precision, target)
    largest = 4 * max(table, config.hidden_size * config.intermediate_size)
    return Estimate(
        weights_bytes=weights_bytes,
        disk_bytes=weights_bytes + (32 << 20),
        peak_bytes=RUNTIME_BYTES + weights_bytes + 2 * largest + (4 * linear if widens else 0),
    )


def _weight_bytes(precision: Precision, target: str) -> float:
    """Give the bytes of a weight, its share of its group's scale included."""
    if precision.name not in FORMATS:
        return ELEMENT_BYTES[precision.name]
    rules = FORMATS[precision.name]
    scale = SCALE_BYTES.get(target, 4) + rules.HAS_ZERO_POINTS
    if is_emulated(precision.name, target):  # whose scales are stored exactly
        scale = ELEMENT_SCALE_BYTES[rules.SCALE]
    per_group: float = scale / precision.group if precision.group else 0
    return per_group + float(rules.BITS) / 8


def _output_bytes(precision: Precision, target: str) -> int:
    """Give the bytes of an output that are shared by no groups: a scale of the whole row, or a factor of its scales."""
    if precision.name not in FORMATS:
        return 0
    emulates = is_emulated(precision.name, target)
    if precision.group == CHANNEL:
        return 4 if emulates else SCALE_BYTES.get(target, 4)
    has_factor = FORMATS[precision.name].SCALE == "FLOAT8E4M3FN" and target in PANELS
    return 4 if emulates and has_factor else 0


def _count_linear(config: ModelConfig, group: int, target: str) -> int:
    """Count the numbers in linear layers without the head, as the target pads them."""
    panel = PANELS.get(target, 1)
    width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    # Gate and up give whole groups where panels are padded at all.
    gated = 2 * _padded(inner, max(group, panel) if panel > 1 else 1)
    shapes = ((width + 2 * kv_width, hidden), (hidden, width), (gated, hidden), (hidden, inner))
    layer = sum(_padded(out, panel) * _padded(size, group) for out, size in shapes)
    return config.num_layers * layer


def _count_rest(config: ModelConfig) -> int:
    """Count the numbers in norms and biases."""
    width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    biases = (width + config.hidden_size + 2 * kv_width) * config.attention_bias
    biases += (2 * config.intermediate_size + config.hidden_size) * config.mlp_bias
    return config.num_layers * (2 * config.hidden_size + biases) + config.hidden_size


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _num_blocks(
    kv_cache_bytes: int | None, max_seq_len: int, max_num_seqs: int, *, kv: KVGeometry
) -> int:
    needed = -(-max_seq_len // kv.block_size)
    if kv_cache_bytes is None:
        tokens = max(max_seq_len, POOLED_TOKENS_PER_SEQ * max_num_seqs)
        return min(-(-tokens // kv.block_size), MAX_BLOCKS)
    blocks = kv_cache_bytes // kv.bytes_per_block
    if blocks < needed:
        raise UserError(
            f"--kv-cache-bytes {kv_cache_bytes} holds {blocks * kv.block_size} tokens, one sequence of "
            f"--max-seq-len {max_seq_len} needs {needed * kv.bytes_per_block} bytes; raise the first or lower the second"
        )
    if blocks > MAX_BLOCKS:
        raise UserError(
            f"--kv-cache-bytes {kv_cache_bytes} is {blocks} blocks, up to {MAX_BLOCKS} are supported; "
            f"give at most {MAX_BLOCKS * kv.bytes_per_block}, or raise --block-size"
        )
    return blocks


def _within(
    option: str, given: int | None, default: int, allowed: tuple[int, int], *, because: str = ""
) -> int:
    value = default if given is None else given
    low, high = allowed
    if not low <= value <= high:
        raise UserError(
            f"{option} {value} is out of range; this model allows {low} to {high}{because}"
        )
    return value
