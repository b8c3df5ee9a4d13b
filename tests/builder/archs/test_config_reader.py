"""Reading config.json: nothing is silently ignored."""

from typing import Any

import pytest

from builder import archs
from builder.artifact.config import RopeConfig
from builder.errors import CheckpointError, UnsupportedError, UserError
from tests.models import tiny_config


def read(**overrides: Any) -> Any:
    return archs.read_config({**tiny_config(), **overrides})


def test_sizes_come_from_the_config() -> None:
    config = read(num_key_value_heads=1)
    assert (config.vocab_size, config.hidden_size, config.num_heads) == (259, 64, 4)
    assert (config.num_kv_heads, config.head_dim, config.num_layers) == (1, 16, 2)
    assert config.rope == RopeConfig(10000.0)


def test_head_size_defaults_to_an_equal_share() -> None:
    assert read(head_dim=None).head_dim == 16


def test_kv_heads_default_to_query_heads() -> None:
    assert read(num_key_value_heads=None).num_kv_heads == 4


def test_harmless_and_private_fields_are_allowed() -> None:
    assert (
        read(use_cache=True, transformers_version="5", _name_or_path="x", pretraining_tp=1)
        == read()
    )


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="attention_temperature"):
        read(attention_temperature=2.0)


def test_a_null_field_means_absent() -> None:
    assert read(brand_new_switch=None) == read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("pretraining_tp", 2),
        ("rope_interleaved", True),
        ("sliding_window", 4096),
        ("partial_rotary_factor", 0.5),
        ("rope_scaling", {"rope_type": "yarn", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "foo"}),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0, "surprise": 1}),
    ],
)
def test_what_is_not_implemented_is_refused_with_its_value(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read(**{field: value})
    shown = (
        (value.get("surprise") and "surprise") or value.get("rope_type", value.get("type"))
        if isinstance(value, dict)
        else value
    )
    assert str(shown) in str(caught.value)


@pytest.mark.parametrize(
    "field",
    ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"],
)
@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "8", True, [4, 4], 1 << 40])
def test_a_size_must_be_one_positive_integer(field: str, value: Any) -> None:
    with pytest.raises(UserError, match=field):
        read(**{field: value})


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"num_key_value_heads": [2, 1]}, "num_key_value_heads"),
        ({"head_dim": 15}, "head_dim 15"),
        ({"head_dim": None, "hidden_size": 65}, "hidden_size 65"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": "big"}, "rope_theta"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_theta": 1e-300}, "rope_theta"),
        ({"rope_scaling": {"rope_type": "factors", "factors": [1e-37] * 8}}, "numbers"),
        ({"num_hidden_layers": 2**31 - 1}, "num_hidden_layers.*10000"),
        ({"max_position_embeddings": 1}, "max_position_embeddings"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"rope_scaling": {"type": "linear", "factor": 10**400}}, "factor"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"model_type": None}, "model_type"),
        ({"rope_scaling": 4}, "rope scaling"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "factor"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 1,
                }
            },
            "below",
        ),
        ({"rope_scaling": {"rope_type": "factors", "factors": [1.0] * 7}}, "7 factors"),
        ({"rope_scaling": {"rope_type": "factors", "factors": ["a"] * 8}}, "numbers"),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"type": "linear", "factor": 4.0},
            },
            "differ",
        ),
    ],
)
def test_contradictions_and_nonsense_are_named(overrides: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read(**overrides)


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"unknown architecture 'lama'.*llama"):
        read(model_type="lama")


def test_both_spellings_of_rope_scaling_mean_the_same() -> None:
    old = read(rope_scaling={"type": "linear", "factor": 2.0})
    new = read(
        rope_theta=None,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    )
    assert old.rope == new.rope == RopeConfig(10000.0, "linear", factor=2.0)
