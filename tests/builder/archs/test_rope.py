"""Rotary tables against transformers' own, at positions around the original length and far past it."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from builder.archs.rope import frequencies, rope_tables
from builder.artifact.config import RopeConfig

POSITIONS = [0, 1, 10, 63, 64, 65, 200, 8191]
KINDS: dict[str, tuple[RopeConfig, dict[str, Any]]] = {
    "default": (RopeConfig(1e5), {"rope_type": "default", "rope_theta": 1e5}),
    "linear": (
        RopeConfig(1e4, "linear", factor=4.0),
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
    ),
    "llama3": (
        RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 64),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 5e5,
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_equal_transformers(kind: str) -> None:
    rope, parameters = KINDS[kind]
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=1,
        head_dim=64,
        max_position_embeddings=8192,
        rope_parameters=parameters,
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor([POSITIONS]))
    ours_cos, ours_sin = rope_tables(rope, 64, 8192)
    np.testing.assert_allclose(ours_cos[POSITIONS], cos[0, :, :32].numpy(), atol=2e-3)
    np.testing.assert_allclose(ours_sin[POSITIONS], sin[0, :, :32].numpy(), atol=2e-3)
    np.testing.assert_allclose(ours_cos[POSITIONS[:-1]], cos[0, :-1, :32].numpy(), atol=3e-5)


def test_factors_are_the_llama3_rule_spelled_out() -> None:
    llama3 = KINDS["llama3"][0]
    divisors = frequencies(RopeConfig(5e5), 64) / frequencies(llama3, 64)
    spelled = RopeConfig(5e5, "factors", factors=tuple(map(float, divisors)))
    np.testing.assert_allclose(frequencies(spelled, 64), frequencies(llama3, 64), rtol=1e-6)
    assert divisors.min() == 1
    assert divisors.max() == pytest.approx(8.0)


def test_linear_scaling_stretches_positions() -> None:
    plain, _ = rope_tables(RopeConfig(1e4), 32, 100)
    stretched, _ = rope_tables(RopeConfig(1e4, "linear", factor=2.0), 32, 199)
    np.testing.assert_allclose(stretched[::2], plain, atol=1e-5)
