import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.checkpoint.open import open_checkpoint
from builder.errors import CheckpointError, UnsupportedError
from tests.models import tiny_config, tiny_llama, tiny_weights

INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00003.safetensors"


def edit(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def places(folder: Path) -> dict[str, str]:
    return json.loads((folder / INDEX).read_text())["weight_map"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_gives_its_weights_and_config(shards: int, dtype: str, tmp_path: Path) -> None:
    opened = open_checkpoint(str(tiny_llama(tmp_path, shards=shards, dtype=dtype, seed=3)))
    config = tiny_config(dtype=dtype)
    assert opened.config == config
    weights = tiny_weights(config, seed=3)
    assert opened.tensors.keys() == weights.keys()
    for name, values in weights.items():
        assert opened.tensors[name].stored == dtype
        np.testing.assert_array_equal(opened.tensors[name].read(), values)


def test_an_index_that_names_an_absent_shard_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    (folder / FIRST).unlink()
    with pytest.raises(CheckpointError, match=f"names {FIRST}, which is missing"):
        open_checkpoint(str(folder))


def test_a_tensor_in_the_index_but_in_no_shard_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    edit(folder / INDEX, weight_map={**places(folder), "model.extra": FIRST})
    with pytest.raises(
        CheckpointError, match=f"places 'model.extra' in {FIRST}, which does not hold it"
    ):
        open_checkpoint(str(folder))


def test_a_tensor_in_a_shard_but_not_in_the_index_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    named = {name: shard for name, shard in places(folder).items() if name != "model.norm.weight"}
    edit(folder / INDEX, weight_map=named)
    with pytest.raises(
        CheckpointError, match=r"holds 'model\.norm\.weight', which .* does not list"
    ):
        open_checkpoint(str(folder))


def test_a_tensor_that_is_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    twice = next(name for name, shard in places(folder).items() if shard != FIRST)
    weights = load_file(folder / FIRST)
    save_file({**weights, twice: np.ones(3, np.float32)}, folder / FIRST)
    with pytest.raises(CheckpointError, match=f"{FIRST} holds '{twice}', which .* places in"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/x.safetensors", "a.bin", 7, "", "a\0.safetensors"]
)
def test_an_index_may_only_name_safetensors_files_beside_it(shard: object, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    edit(folder / INDEX, weight_map={**places(folder), "x": shard})
    with pytest.raises(CheckpointError, match="not a safetensors file name"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("weight_map", [None, {}, []])
def test_an_index_without_a_weight_map_is_refused(weight_map: object, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    edit(folder / INDEX, weight_map=weight_map)
    with pytest.raises(CheckpointError, match="has no weight_map"):
        open_checkpoint(str(folder))


def test_a_single_file_beside_an_index_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    tiny_llama(folder)
    with pytest.raises(CheckpointError, match=f"both model.safetensors and {INDEX}"):
        open_checkpoint(str(folder))


def test_shards_that_nothing_names_are_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, shards=3)
    (folder / "model-00004-of-00004.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="weights that nothing names: model-00004-of-00004"):
        open_checkpoint(str(folder))
    (folder / INDEX).unlink()
    (folder / "model-00004-of-00004.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="weights that nothing names: model-00001"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_with_the_remedy_and_never_run(
    name: str, tmp_path: Path
) -> None:
    folder = tiny_llama(tmp_path)
    (folder / "model.safetensors").unlink()
    marker = tmp_path / "marker"
    (folder / name).write_bytes(f"cbuiltins\nopen\n(S'{marker}'\nS'w'\ntR.".encode())
    with pytest.raises(UnsupportedError, match=f"{name}.*Convert once with: python -c"):
        open_checkpoint(str(folder))
    assert not marker.exists()


def test_pickles_beside_safetensors_are_left_alone(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert open_checkpoint(str(folder)).tensors


def test_code_in_the_folder_is_not_imported(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, auto_map={"AutoModelForCausalLM": "modeling_tiny.Tiny"})
    marker = tmp_path / "marker"
    (folder / "modeling_tiny.py").write_text(f"open({str(marker)!r}, 'w')")
    opened = open_checkpoint(str(folder))
    assert opened.config["auto_map"]
    assert not marker.exists()
    assert "modeling_tiny" not in sys.modules


def test_a_quantized_checkpoint_is_refused_by_the_name_of_its_method(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(UnsupportedError, match=r"unknown quantization method 'bitsandbytes'"):
        open_checkpoint(str(folder))


def test_a_folder_without_config_or_weights_is_refused_with_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))
    folder = tiny_llama(tmp_path)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(
        CheckpointError, match=r"no model\.safetensors .*; it has weights\.safetensors"
    ):
        open_checkpoint(str(folder))
    (folder / "weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match=rf"no model\.safetensors and no {INDEX}$"):
        open_checkpoint(str(folder))


def test_a_truncated_weight_file_is_named(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated"):
        open_checkpoint(str(folder))
