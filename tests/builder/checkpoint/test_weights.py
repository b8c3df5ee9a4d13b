import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tensors import Checkpoint
from builder.checkpoint.weights import EMBEDDING, HEAD, SPARES, WeightReader, has_tied_head
from builder.errors import CheckpointError, UnsupportedError
from tests.models import tiny_llama

PARTS = ("gate", "up", "down")
INV_FREQ = "model.layers.0.self_attn.rotary_emb.inv_freq"


def checkpoint(
    folder: Path, extra: dict[str, np.ndarray] | None = None, **config: object
) -> Checkpoint:
    """Open a tiny Llama with tensors added."""
    tiny_llama(folder, **config)
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, **(extra or {})}, folder / "model.safetensors")
    return open_checkpoint(str(folder))


def take_all_but(reader: WeightReader, opened: Checkpoint, *names: str) -> None:
    for name in opened.tensors:
        if name not in names:
            reader.take(name, opened.tensors[name].shape)


def test_all_weights_taken_once_leave_nothing(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path)
    reader = WeightReader(opened)
    take_all_but(reader, opened)
    assert reader.finish() == {}


def test_weights_that_are_left_are_named(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)}
    opened = checkpoint(tmp_path, extra)
    reader = WeightReader(opened)
    take_all_but(reader, opened, *extra)
    with pytest.raises(UnsupportedError, match=r"model\.layers\.0\.self_attn\.q_norm\.weight"):
        reader.finish()


def test_many_left_weights_are_counted_not_all_listed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="and 15 more"):
        WeightReader(checkpoint(tmp_path)).finish()


def test_a_missing_weight_is_answered_with_close_names(tmp_path: Path) -> None:
    reader = WeightReader(checkpoint(tmp_path))
    with pytest.raises(
        CheckpointError, match=r"Close to it: .*model\.layers\.0\.mlp\.up_proj\.weight"
    ):
        reader.take("model.layers.0.mlp.up_proj.bias", (96,))
    with pytest.raises(CheckpointError, match="None of its 20 tensors is close"):
        reader.take("????", (96,))


def test_a_missing_weight_among_very_many_is_answered_at_once(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path)
    tensor = opened.tensors["model.norm.weight"]
    names = [f"model.layers.{n}.mlp.{part}_proj.weight" for n in range(15_000) for part in PARTS]
    reader = WeightReader(replace(opened, tensors=dict.fromkeys(names, tensor)))
    started = time.monotonic()
    with pytest.raises(CheckpointError, match=r"Close to it: .*layers\.7\.mlp\.up_proj\.weight"):
        reader.take("model.layers.7.mlp.up_proj.weigth", (96, 64))
    assert time.monotonic() - started < 5, "twenty times what it takes"


def test_a_name_that_begins_otherwise_is_close_to_one_that_ends_alike(tmp_path: Path) -> None:
    reader = WeightReader(checkpoint(tmp_path, {"zz": np.ones(1, np.float32)}))
    with pytest.raises(CheckpointError, match=r"Close to it: .*model\.norm\.weight"):
        reader.take("xmodel.norm.weight", (64,))


def test_a_weight_that_is_taken_twice_is_an_error(tmp_path: Path) -> None:
    reader = WeightReader(checkpoint(tmp_path))
    reader.take(EMBEDDING, (259, 64))
    with pytest.raises(CheckpointError, match="used twice"):
        reader.take(EMBEDDING, (259, 64))


def test_rotary_frequencies_are_spared_with_the_reason(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path, {INV_FREQ: np.ones(8, np.float32)})
    reader = WeightReader(opened)
    take_all_but(reader, opened, INV_FREQ)
    assert reader.finish() == {INV_FREQ: "rotary frequencies are computed from the config"}


def test_a_stored_head_equal_to_the_embedding_is_tied_and_spared(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    embedding = load_file(tmp_path / "model.safetensors")[EMBEDDING]
    opened = checkpoint(tmp_path, {HEAD: embedding.copy()})
    assert has_tied_head(opened)
    reader = WeightReader(opened)
    take_all_but(reader, opened, HEAD)
    assert list(reader.finish()) == [HEAD]


def test_a_stored_head_that_differs_is_used_though_the_config_says_tied(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path, {HEAD: np.ones((259, 64), np.float32)})
    assert not has_tied_head(opened)
    reader = WeightReader(opened)
    take_all_but(reader, opened, HEAD)
    with pytest.raises(UnsupportedError, match="lm_head"):
        reader.finish()


@pytest.mark.parametrize(("tie", "is_tied"), [(True, True), (False, False), (None, False)])
def test_tying_follows_the_config(tie: bool | None, is_tied: bool, tmp_path: Path) -> None:
    assert has_tied_head(checkpoint(tmp_path, tie_word_embeddings=tie)) == is_tied


def test_every_rule_that_spares_a_weight_says_why() -> None:
    assert all(spare.reason for spare in SPARES)
