"""Say in one sentence in what precision an engine computes."""

from collections.abc import Sequence

from builder.artifact.config import KVGeometry
from builder.quant.plan import BFLOAT16, FLOAT32
from builder.targets.cpu.packing import Packed
from builder.targets.cpu.plan import Buffer, Form, Program

KV = {
    FLOAT32: "keys and values float32",
    BFLOAT16: "keys and values bfloat16",
    "int8": "keys and values int8 with a float32 scale per token and head",
    "fp8": "keys and values E4M3 with fixed scales, one for the keys and one for the values of a layer",
    "int8-static": "keys and values int8 with fixed scales, one for the keys and one for the values of a layer",
}
"""Stored precisions of keys and values, and what to say of them."""


def describe(
    program: Program, weights: Sequence[Packed], emulated: Sequence[str], kv: KVGeometry
) -> str:
    """Give the sentence; `emulated` are the formats whose numbers are multiplied in float32."""
    attention = f"{_attention(kv)}; all else float32"
    if emulated:
        rows = " or ".join(dict.fromkeys(filter(None, map(_rounded, program.buffers))))
        activations = f"their activations rounded to {rows}, " if rows else ""
        names = " and ".join(emulated)
        return f"emulation of {names}: exactly its weights, stored in their bits and widened, {activations}multiplied in float32; {attention}"
    kinds = dict.fromkeys((w.form, w.group) for w in weights if w.form != Form.FLOAT32)
    if not kinds:
        is_whole = kv.groups[0].dtype == FLOAT32
        return "float32 throughout" if is_whole else f"float32 weights; {attention}"
    narrow = ""
    if (Form.BFLOAT16, 0) in kinds:
        narrow = "bfloat16 weights; the activations of linear layers are rounded to bfloat16; "
        del kinds[Form.BFLOAT16, 0]
    if not kinds:
        return f"{narrow}{attention}"
    if narrow:
        narrow = "bfloat16 weights of other layers, whose activations are rounded to bfloat16; "
    stored = " and ".join(
        f"{form.name.lower()} weights with a half-precision scale per {group} inputs"
        for form, group in kinds
    )
    shared = " or ".join(dict.fromkeys(filter(None, map(_quantized, program.buffers))))
    return f"{stored}; the activations of their layers are rounded to int8 {shared}; {narrow}{attention}"


def _attention(kv: KVGeometry) -> str:
    (group,) = kv.groups
    if group.dtype == FLOAT32:
        return KV[group.dtype]
    return f"{KV[group.dtype]}, queries and attention weights bfloat16 where the machine multiplies that"


def _rounded(buffer: Buffer) -> str:
    """Say what emulated rows are rounded to; nothing of others."""
    if buffer.form == Form.E2M1:
        return "E2M1 per 16 under a fixed scale"
    if buffer.form != Form.E4M3:
        return ""
    if buffer.scale:
        return "E4M3 with a fixed scale"
    return f"E4M3 per token and {buffer.group}" if buffer.group else "E4M3 per token"


def _quantized(buffer: Buffer) -> str:
    """Say what shares a scale in rows of int8; nothing of others."""
    if buffer.form != Form.INT8:
        return ""
    return "with a fixed scale" if buffer.scale else f"per {buffer.group}"
