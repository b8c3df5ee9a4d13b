"""Formats that are compared: how each is compiled, and what of modelopt and llama.cpp stands beside it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    options: tuple[str, ...]
    """Of `builder compile`."""
    modelopt: str | None = None
    """Configuration of modelopt for the same format; None where it has none that runs without a GPU."""
    llama_cpp: str | None = None
    """The format of llama.cpp with as many bits."""


def _quant(name: str, modelopt: str | None = None, llama_cpp: str | None = None) -> Format:
    return Format(("--quant", name), modelopt, llama_cpp)


FORMATS = {
    "bfloat16": Format(("--dtype", "bfloat16")),
    "int8": _quant("int8", llama_cpp="Q8_0"),
    "int8-smoothquant": _quant("int8-smoothquant", "INT8_SMOOTHQUANT_CFG"),
    "int8-weight-only": _quant("int8-weight-only", "INT8_WEIGHT_ONLY_CFG"),
    "fp8": _quant("fp8", "FP8_DEFAULT_CFG"),
    "fp8-dynamic": _quant("fp8-dynamic", "FP8_PER_CHANNEL_PER_TOKEN_CFG"),
    "fp8-block": _quant("fp8-block"),
    "fp8-weight-only": _quant("fp8-weight-only"),
    "int4": _quant("int4", llama_cpp="Q4_0"),
    "uint4": _quant("uint4"),
    "int4-awq": _quant("int4-awq", "INT4_AWQ_CFG"),
    "nvfp4": _quant("nvfp4", "NVFP4_DEFAULT_CFG"),
    "nvfp4-weight-only": _quant("nvfp4-weight-only", "W4A16_NVFP4_CFG"),
    "mxfp4": _quant("mxfp4"),
}
"""By name, from the widest numbers to the narrowest."""
