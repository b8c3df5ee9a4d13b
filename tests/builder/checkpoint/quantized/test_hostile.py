"""Whatever stands in a config or in a header, a quantized checkpoint is read or refused in one line."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.quantized import SCHEMES
from builder.errors import ForerunError
from tests.quantized import write_awq, write_gptq, write_packed, write_w8a8

WRITERS = {"gptq": write_gptq, "awq": write_awq, "packed": write_packed, "w8a8": write_w8a8}
ATTEMPTS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    write_gptq(path)
    return path


def read_all(folder: Path) -> None:
    for tensor in open_checkpoint(str(folder)).tensors.values():
        tensor.read()


def check_one_line(folder: Path) -> bool:
    """Tell whether it was refused."""
    told = ""
    try:
        read_all(folder)
    except ForerunError as error:
        told = str(error)
    assert "\n" not in told
    assert len(told) < 1000
    return bool(told)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_header_with_other_names_types_and_sizes_is_refused_or_read(
    writer: str, tmp_path: Path
) -> None:
    """Entries trade places and lose bytes; the file as such stays valid."""
    WRITERS[writer](tmp_path, num_hidden_layers=1)
    path, draw = tmp_path / "model.safetensors", random.Random(7)  # noqa: S311 - the same numbers every time
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    refused = 0
    for _ in range(ATTEMPTS):
        changed = dict(header)
        one, other = draw.sample(names, 2)
        kind = draw.randrange(3)
        if kind == 0:
            changed[one], changed[other] = header[other], header[one]
        elif kind == 1:
            changed[one] = header[one] | {"shape": header[one]["shape"][::-1]}
        else:
            changed[f"{one.rpartition('.')[0]}.{other.rpartition('.')[2]}"] = changed.pop(one)
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])
        refused += check_one_line(tmp_path)
    assert refused > ATTEMPTS // 4


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-300, 300) | st.sampled_from(["", "re:.*", "group", "Linear"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "weights"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
FIELDS = ("bits", "group_size", "sym", "checkpoint_format", "config_groups", "ignore", "format", "version",
          "modules_to_not_convert", "weight_block_size", "quant_algo", "quantization", "quant_method")  # fmt: skip


@settings(max_examples=150)
@given(
    method=st.sampled_from([*SCHEMES, "none"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)
def test_any_config_is_read_or_refused_in_one_line(
    method: str, fields: dict[str, Any], folder: Path
) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {
        "quantization_config": {"quant_method": method} | fields
    }
    path.write_text(json.dumps(config))
    check_one_line(folder)
