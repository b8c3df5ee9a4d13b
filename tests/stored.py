"""Sizes of what lies in a safetensors file, of element types that numpy lacks too."""

import json
from math import prod
from pathlib import Path


def stored_bytes(path: Path) -> dict[str, int]:
    """Give the bytes of each tensor, by name."""
    with path.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    spans = {name: entry["data_offsets"] for name, entry in header.items()}
    for name, entry in header.items():
        bits = int("".join(filter(str.isdigit, entry["dtype"].partition("_")[0])))
        assert (spans[name][1] - spans[name][0]) * 8 == prod(entry["shape"]) * bits
    return {name: end - start for name, (start, end) in spans.items()}
