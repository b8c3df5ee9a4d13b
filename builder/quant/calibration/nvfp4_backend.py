"""NVFP4 rounding for modelopt on machines without a GPU, where its own is a CUDA kernel.

Numbers are E2M1, ties to even, with an E4M3 scale per 16 and one float32 scale per tensor, as in `builder.quant.nvfp4`.
"""

from typing import Any

from builder.quant import floats
from builder.quant.nvfp4 import GROUP

BACKEND = "forerun-nvfp4"
LARGEST, LARGEST_SCALE = floats.LARGEST[floats.E2M1], floats.LARGEST[floats.E4M3]


def register() -> None:
    """Make the rounding known to modelopt; again does nothing."""
    from modelopt.torch.quantization.nn import (  # noqa: PLC0415 (of the extra `quant`)
        is_registered_quant_backend,
        register_quant_backend,
    )

    if not is_registered_quant_backend(BACKEND):
        register_quant_backend(BACKEND, _rounded_by)


def _rounded_by(values: Any, quantizer: Any) -> Any:
    """Round a tensor as one of modelopt's quantizers says: by its amax, or by the tensor's own where it has none."""
    amax = getattr(quantizer, "_amax", None)
    return rounded(values, values.abs().amax() if amax is None else amax)


def rounded(values: Any, amax: Any) -> Any:
    """Round a tensor `[..., in]`, groups along its last axis, to the NVFP4 numbers that reach to `amax` `[]`."""
    import torch  # noqa: PLC0415 (of the extra `quant`)

    groups = values.float().reshape(-1, GROUP)
    scale = amax.float().reshape(()) / (LARGEST * LARGEST_SCALE)
    wanted = groups.abs().amax(1, keepdim=True) / LARGEST / torch.where(scale == 0, 1.0, scale)
    steps = wanted.clamp(max=LARGEST_SCALE).to(torch.float8_e4m3fn).float() * scale
    numbers = groups / torch.where(steps == 0, 1.0, steps)
    _, exponent = torch.frexp(numbers)  # of a mantissa from 0.5 on: 1 is 0.5 * 2
    step = torch.exp2((exponent - 1).clamp(0, 2) - 1.0)
    nearest = (torch.round(numbers / step) * step).clamp(-LARGEST, LARGEST)
    return (nearest * steps).reshape(values.shape).to(values.dtype)
