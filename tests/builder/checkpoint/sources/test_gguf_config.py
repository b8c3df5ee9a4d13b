"""The config.json that GGUF metadata stands for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.sources.gguf_archs import GGUF_ARCHS
from builder.checkpoint.tensors import Checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.gguf_file import Typed, write_gguf
from tests.models import gguf_metadata, smollm2_gguf, tiny_config, tiny_gguf


def opened(folder: Path, **options: Any) -> Checkpoint:
    return open_checkpoint(str(tiny_gguf(folder / "m.gguf", **options)))


def with_metadata(folder: Path, **changed: Any) -> Checkpoint:
    """Open a tiny GGUF with metadata changed; `__` stands for a dot."""
    return opened(
        folder, metadata={key.replace("__", "."): value for key, value in changed.items()}
    )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": False},
        {"attention_bias": True},
        {"mlp_bias": True, "rope_theta": 5e5},
    ],
)
def test_the_config_is_that_of_the_hugging_face_folder(
    config: dict[str, Any], tmp_path: Path
) -> None:
    fields = tiny_config(**config)
    del fields["dtype"]
    assert opened(tmp_path, **config).config == fields


@pytest.mark.model
def test_the_config_of_the_real_file_is_that_of_smollm2() -> None:
    assert open_checkpoint(str(smollm2_gguf())).config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": 30,
        "max_position_embeddings": 8192,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000.0,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def test_absent_keys_mean_what_they_mean_in_llama_cpp(tmp_path: Path) -> None:
    absent = dict.fromkeys(
        (
            "llama.attention.head_count_kv",
            "llama.attention.key_length",
            "llama.attention.value_length",
            "llama.rope.freq_base",
            "llama.rope.dimension_count",
            "llama.vocab_size",
        )
    )
    config = opened(tmp_path, metadata=absent, num_key_value_heads=4, rope_theta=1.0).config
    assert (config["num_key_value_heads"], config["head_dim"]) == (4, 16)
    assert (config["rope_theta"], config["vocab_size"]) == (10000.0, 259)


def test_a_value_per_layer_is_read_when_all_layers_agree(tmp_path: Path) -> None:
    assert (
        with_metadata(tmp_path, llama__attention__head_count=[4, 4]).config["num_attention_heads"]
        == 4
    )
    with pytest.raises(UnsupportedError, match="head_count differs between layers"):
        with_metadata(tmp_path, llama__attention__head_count=[4, 2])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 8),
        ("llama.expert_used_count", 2),
        ("llama.attention.causal", False),
        ("llama.attention.value_length", 8),
        ("llama.rope.dimension_count", 8),
        ("llama.attention.sliding_window", 128),
        ("llama.logit_scale", 2.0),
        ("llama.attn_logit_softcapping", 30.0),
        ("general.type", "adapter"),
        ("general.quantization_version", 1),
        ("split.count", 2),
        ("split.no", 1),
    ],
)
def test_a_key_that_would_change_the_graph_is_refused_by_name(
    key: str, value: Any, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=key.replace(".", r"\.")):
        opened(tmp_path, metadata={key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 0),
        ("llama.attention.causal", True),
        ("llama.tensor_data_layout", "Meta AI original pth"),
        ("general.type", "model"),
        ("general.name", "anything"),
        ("general.quantization_version", 2),
        ("split.count", 0),
        ("quantize.imatrix.file", "x"),
    ],
)
def test_a_key_that_changes_nothing_is_accepted(key: str, value: Any, tmp_path: Path) -> None:
    opened(tmp_path, metadata={key: value})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("llama.block_count", None, r"lacks llama\.block_count"),
        ("general.architecture", None, r"lacks general\.architecture"),
        ("llama.vocab_size", 300, "vocab_size is 300, but token_embd.weight has 259 rows"),
        ("llama.attention.head_count", 0, "no size"),
        ("llama.embedding_length", 1.5, "no size"),
    ],
)
def test_missing_and_contradicting_keys_are_refused(
    key: str, value: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        opened(tmp_path, metadata={key: value})


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=f"'llamb'. Did you mean llama.*{', '.join(GGUF_ARCHS)}"
    ):
        with_metadata(tmp_path, general__architecture="llamb")


def test_a_file_without_embedding_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", gguf_metadata(tiny_config()), {})
    with pytest.raises(CheckpointError, match=r"no matrix token_embd\.weight"):
        open_checkpoint(str(path))


# Rope scaling


def test_linear_scaling_is_read_in_its_three_spellings(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 4.0}
    spellings: list[dict[str, Any]] = [
        {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0},
        {"llama__rope__scaling__factor": 4.0},
        {"llama__rope__scale_linear": 4.0},
    ]
    for spelling in spellings:
        assert with_metadata(tmp_path, **spelling).config["rope_scaling"] == linear


def test_no_scaling_is_read_as_none(tmp_path: Path) -> None:
    spellings: list[dict[str, Any]] = [
        {},
        {"llama__rope__scaling__type": "none", "llama__rope__scaling__factor": 4.0},
        {"llama__rope__scaling__factor": 0.0},
        {"llama__rope__scaling__factor": 1.0, "llama__rope__scaling__finetuned": True},
    ]
    for spelling in spellings:
        assert "rope_scaling" not in with_metadata(tmp_path, **spelling).config


def test_the_divisors_of_llama3_become_factors_of_the_config(tmp_path: Path) -> None:
    divisors = np.array([1, 1, 1, 1.25, 2.1, 8, 8, 8], np.float32)
    checkpoint = opened(tmp_path, tensors={"rope_freqs.weight": divisors})
    scaling = checkpoint.config["rope_scaling"]
    assert scaling["rope_type"] == "factors"
    np.testing.assert_array_equal(np.float32(scaling["factors"]), divisors)
    assert scaling["factors"][4] == 2.1
    assert not any("rope" in name for name in checkpoint.tensors)


@pytest.mark.parametrize("kind", ["yarn", "longrope", "foo"])
def test_an_unknown_rope_scaling_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"rope scaling type '{kind}'"):
        with_metadata(tmp_path, llama__rope__scaling__type=kind)


def test_two_rope_scalings_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="by a factor at once"):
        opened(
            tmp_path,
            metadata={"llama.rope.scaling.factor": 4.0},
            tensors={"rope_freqs.weight": np.ones(8, np.float32)},
        )


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_divisors_that_are_not_above_zero_are_refused(bad: float, tmp_path: Path) -> None:
    divisors = np.array([1] * 7 + [bad], np.float32)
    with pytest.raises(CheckpointError, match="not above 0"):
        opened(tmp_path, tensors={"rope_freqs.weight": divisors})


def test_divisors_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"rope_freqs\.weight must be a vector"):
        opened(tmp_path, tensors={"rope_freqs.weight": np.ones((1, 32), np.float32)})


def test_a_float64_keeps_its_digits(tmp_path: Path) -> None:
    assert (
        with_metadata(tmp_path, llama__rope__freq_base=Typed(12, 1e300)).config["rope_theta"]
        == 1e300
    )
