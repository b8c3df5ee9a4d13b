"""Write a GGUF file of a Llama of about 10**9 random weights, with the tokenizer of the demo model.

It is for speed alone: at this size a step is bound by the bytes of its weights. The same seed gives the same file.
Usage: scripts/bench random_model FILE [--seed N].
"""

import argparse
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, Keys
from peer_engines.catalogue import demo_model
from reporting.failures import exit_with
from rich.console import Console
from rich.progress import track

ARCH = "llama"
NUM_LAYERS, HIDDEN, INTERMEDIATE = 16, 2048, 8192
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 8, 64
SHAPE = {
    Keys.LLM.BLOCK_COUNT: NUM_LAYERS,
    Keys.LLM.EMBEDDING_LENGTH: HIDDEN,
    Keys.LLM.FEED_FORWARD_LENGTH: INTERMEDIATE,
    Keys.Attention.HEAD_COUNT: NUM_HEADS,
    Keys.Attention.HEAD_COUNT_KV: NUM_KV_HEADS,
}
"""That of Llama 3.2 1B, less its vocabulary."""
SCALE = 0.02


def tensor_shapes(vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Give the shapes of all tensors, outputs first; the head is the embedding."""
    queries, keys = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (queries, HIDDEN),
        "attn_k": (keys, HIDDEN),
        "attn_v": (keys, HIDDEN),
        "attn_output": (HIDDEN, queries),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (INTERMEDIATE, HIDDEN),
        "ffn_up": (INTERMEDIATE, HIDDEN),
        "ffn_down": (HIDDEN, INTERMEDIATE),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab_size, HIDDEN)}
    for index in range(NUM_LAYERS):
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes | {"output_norm.weight": (HIDDEN,)}


def copy_fields(source: GGUFReader, writer: GGUFWriter) -> None:
    """Write all fields of the source, those of the shape replaced."""
    shape = {key.format(arch=ARCH): value for key, value in SHAPE.items()}
    written = {Keys.General.ARCHITECTURE, Keys.General.NAME}
    for name, field in source.fields.items():
        if name.startswith("GGUF.") or name in written:
            continue
        kind, *items = field.types
        value = shape.get(name, field.contents())
        is_array = kind == GGUFValueType.ARRAY
        writer.add_key_value(name, value, kind, sub_type=items[0] if is_array else None)


def write_model(path: Path, seed: int) -> None:
    """Write the file; matrices in float16, norms of ones in float32."""
    source, writer = GGUFReader(demo_model()), GGUFWriter(path, ARCH)
    writer.add_name("random 1b")
    copy_fields(source, writer)
    random = np.random.Generator(np.random.Philox(seed))
    shapes = tensor_shapes(len(source.fields[Keys.Tokenizer.LIST].data))
    kinds = {name: np.float16 if len(shape) > 1 else np.float32 for name, shape in shapes.items()}
    for name, shape in shapes.items():
        kind = np.dtype(kinds[name])
        writer.add_tensor_info(name, shape, kind, int(np.prod(shape)) * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape in track(shapes.items(), "weights", console=Console(stderr=True)):
        is_norm = len(shape) == 1
        values = np.ones(shape) if is_norm else random.standard_normal(shape, np.float32) * SCALE
        writer.write_tensor_data(values.astype(kinds[name]))
    writer.close()


def main() -> None:
    """Write one file, which takes its name when it is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = options.file.with_suffix(".unfinished")
    write_model(unfinished, options.seed)
    unfinished.rename(options.file)


if __name__ == "__main__":
    exit_with(main)
