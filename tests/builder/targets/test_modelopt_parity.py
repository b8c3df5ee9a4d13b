"""Engines of checkpoints that modelopt exported, against modelopt's own fake-quantized torch model of the same weights.

Rows that are rounded to few bits make a cliff of every boundary between two steps: a sum in another order flips one number in
some tens of thousands, and every token behind it differs by about 1 %. So rows are judged by their median, which no flip reached.
"""

from pathlib import Path

import numpy as np
import pytest

from builder.targets import open_executor
from tests.built import compile_model
from tests.modelopt_model import quantize_with_modelopt
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

SIZES = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32}
EXACT, FLIPPED = (1e-5, 1e-5), (1e-5, 3e-2)
ROUNDED = (6e-2, 6e-2)
"""For integers whose scales or rows an engine rounds as modelopt does not."""
CONFIGS = {
    "FP8_DEFAULT_CFG": (FLIPPED, FLIPPED),
    "FP8_PER_CHANNEL_PER_TOKEN_CFG": (FLIPPED, FLIPPED),
    "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG": (EXACT, EXACT),
    "NVFP4_DEFAULT_CFG": (FLIPPED, FLIPPED),
    "W4A16_NVFP4_CFG": (EXACT, EXACT),
    "INT8_SMOOTHQUANT_CFG": (
        ROUNDED,
        FLIPPED,
    ),  # of target cpu, scales have 11 bits and rows end at -127
    "INT8_WEIGHT_ONLY_CFG": (ROUNDED, ROUNDED),  # integer kernels round rows
}
"""For targets cpu and portable, bounds on the relative difference of logits: of half of the tokens, and of all together."""


@pytest.mark.parametrize("config", CONFIGS)
def test_an_engine_says_what_modelopts_own_model_says(config: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", **SIZES)
    draw = np.random.default_rng(0)
    calibrating, asked = (draw.integers(0, 256, (count, 64)) for count in (4, 2))
    want = quantize_with_modelopt(
        model, config, tmp_path / "exported", calibrating=calibrating, asked=asked
    )
    for target, bounds in zip(("cpu", "portable"), CONFIGS[config], strict=True):
        built = compile_model(
            tmp_path / "exported", tmp_path / target, target=target, max_num_seqs=64
        )
        executor = open_executor(built)
        runner = PagedRunner(executor)
        got = np.stack([runner.whole(row.tolist()) for row in asked])
        executor.close()
        rows = np.linalg.norm(got - want, axis=2) / np.linalg.norm(want, axis=2)
        assert np.median(rows) < bounds[0]
        assert np.linalg.norm(got - want) < bounds[1] * np.linalg.norm(want)
