"""The precisions of weights that the native engine takes, by the label that a manifest gives them."""

from typing import Any

PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quant": "int8"},
    "int8-g64": {"quant": "int8", "group": 64},
    "int8-g128": {"quant": "int8", "group": 128},
    "int8-channel": {"quant": "int8", "group": 0},
    "int4": {"quant": "int4"},
    "int4-g64": {"quant": "int4", "group": 64},
    "int4-g128": {"quant": "int4", "group": 128},
    "uint4": {"quant": "uint4"},
    "uint4-g64": {"quant": "uint4", "group": 64},
    "uint4-g128": {"quant": "uint4", "group": 128},
    "fp8-dynamic": {"quant": "fp8-dynamic"},
    "fp8-weight-only": {"quant": "fp8-weight-only"},
    "nvfp4-weight-only": {"quant": "nvfp4-weight-only"},
    "mxfp4": {"quant": "mxfp4"},
}
