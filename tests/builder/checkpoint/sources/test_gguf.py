from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tensors import Checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.gguf_file import Stored, write_gguf
from tests.models import SPECIALS, gguf_metadata, smollm2_gguf, tiny_config, tiny_gguf, tiny_weights

READABLE = sorted(
    kind.name
    for kind in gguf.GGMLQuantizationType
    if kind.name not in {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0"}
)


def opened(folder: Path, **options: Any) -> Checkpoint:
    return open_checkpoint(str(tiny_gguf(folder / "m.gguf", **options)))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": False},
        {"attention_bias": True, "mlp_bias": True},
        {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8},
        {"num_attention_heads": 1, "num_key_value_heads": 1},
    ],
)
def test_weights_come_out_as_in_the_hugging_face_folder(
    config: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = opened(tmp_path, seed=5, **config)
    weights = tiny_weights(tiny_config(**config), seed=5)
    assert checkpoint.tensors.keys() == weights.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), values, err_msg=name)
        assert checkpoint.tensors[name].shape == values.shape


@pytest.mark.parametrize("stored", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_rows_are_put_in_order_also_in_blocks(stored: str, tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, stored=stored)
    name = "model.layers.1.self_attn.q_proj.weight"
    kind = gguf.GGMLQuantizationType[stored]
    rounded = gguf.dequantize(gguf.quantize(tiny_weights(tiny_config())[name], kind), kind)
    np.testing.assert_array_equal(checkpoint.tensors[name].read(), rounded)
    expected = {"F16": "float16", "BF16": "bfloat16"}.get(stored, stored)
    assert checkpoint.tensors[name].stored == expected


@pytest.mark.parametrize(("stored", "form"), [("Q8_0", "int8"), ("Q5_0", "int8"), ("Q4_0", "int4")])
def test_blocks_that_a_format_has_are_kept_in_their_bits(
    stored: str, form: str, tmp_path: Path
) -> None:
    checkpoint = opened(tmp_path, stored=stored)
    kind = gguf.GGMLQuantizationType[stored]
    weights = tiny_weights(tiny_config())
    assert checkpoint.method == f"GGUF {stored}"
    assert {
        name for name in weights if name.endswith("_proj.weight")
    } <= checkpoint.quantized.keys()
    for name, weight in checkpoint.quantized.items():
        assert (weight.format, weight.group) == (form, 32)
        rounded = gguf.dequantize(gguf.quantize(weights[name], kind), kind)
        np.testing.assert_array_equal(weight.dequantize(), rounded)


@pytest.mark.parametrize("stored", ["F16", "Q4_1", "Q5_1"])
def test_other_blocks_are_dequantized(stored: str, tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, stored=stored)
    assert not checkpoint.quantized
    assert checkpoint.method is None


def test_layers_of_different_types_are_all_dequantized(tmp_path: Path) -> None:
    matrix = Stored.from_numbers(np.ones((64, 64), np.float32), "Q8_0")
    other = Stored.from_numbers(np.ones((64, 64), np.float32), "Q4_0")
    tensors = {
        "token_embd.weight": Stored.from_numbers(np.ones((259, 64), np.float32), "F16"),
        "blk.0.ffn_up.weight": matrix,
        "blk.0.ffn_down.weight": other,
    }
    model = write_gguf(tmp_path / "m.gguf", gguf_metadata(tiny_config()), tensors)
    assert not open_checkpoint(str(model)).quantized


def test_numbers_behind_a_scale_of_0_are_0(tmp_path: Path) -> None:
    raw = bytes(2) + bytes(range(1, 33))
    table = Stored.from_numbers(np.ones((259, 64), np.float32), "F16")
    tensors = {"token_embd.weight": table, "blk.0.ffn_down.weight": Stored(8, (1, 32), raw)}
    model = write_gguf(tmp_path / "m.gguf", gguf_metadata(tiny_config()), tensors)
    (weight,) = open_checkpoint(str(model)).quantized.values()
    assert not weight.read()[0].any()


@pytest.mark.parametrize("kind", READABLE)
def test_every_type_that_gguf_can_dequantize_is_read(kind: str, tmp_path: Path) -> None:
    number = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[number]
    raw = np.random.default_rng(0).integers(0, 60, (259, block_bytes), np.uint8)
    tensors = {"token_embd.weight": Stored(int(number), (259, block), raw.tobytes())}
    model = write_gguf(tmp_path / "m.gguf", gguf_metadata(tiny_config()), tensors)
    table = open_checkpoint(str(model)).tensors["model.embed_tokens.weight"]
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(raw, number)
    if np.isfinite(expected).all():
        np.testing.assert_array_equal(table.read(), expected)
    assert table.nbytes_stored == raw.nbytes


@pytest.mark.parametrize("kind", ["Q8_1", "Q8_K", "I32", "F64", "Q1_0"])
def test_a_type_that_can_not_be_dequantized_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    number = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[number]
    tensors = {"token_embd.weight": Stored(int(number), (259, block), bytes(259 * block_bytes))}
    model = write_gguf(tmp_path / "m.gguf", gguf_metadata(tiny_config()), tensors)
    with pytest.raises(UnsupportedError, match=f"GGUF block type {kind} can't be dequantized"):
        open_checkpoint(str(model))


@pytest.mark.parametrize(
    "name", ["blk.0.ffn_gate_inp.weight", "blk.0.attn_q.scale", "rope_long.weight", "x"]
)
def test_a_tensor_that_the_architecture_does_not_know_is_refused_by_name(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=name.replace(".", r"\.")):
        opened(tmp_path, tensors={name: np.ones((2, 32), np.float32)})


def test_rows_that_make_no_whole_heads_are_refused(tmp_path: Path) -> None:
    odd = {"blk.0.attn_q.weight": np.ones((60, 64), np.float32)}
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_q\.weight has 60 rows"):
        opened(tmp_path, tensors=odd)


@pytest.mark.model
@pytest.mark.slow
def test_the_real_file_equals_what_transformers_reads_from_it() -> None:
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint  # noqa: PLC0415

    path = str(smollm2_gguf())
    fields = load_gguf_checkpoint(path)["config"]
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**fields))
    theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors.keys() == theirs.keys()
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), theirs[name].float().numpy(), err_msg=name)
    for field in (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rope_theta",
    ):
        assert checkpoint.config[field] == fields[field]


def test_the_tiny_tokenizer_of_both_formats_is_the_same(tmp_path: Path) -> None:
    files = opened(tmp_path).tokenizer
    assert files.num_tokens == 259
    assert {token.text for token in files.end_tokens} == {SPECIALS[0], SPECIALS[2]}
