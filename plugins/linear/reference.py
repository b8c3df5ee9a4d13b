"""Linear in plain numpy, with sums in float64 where a kernel adds float32."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plugins.linear.spec import PANEL

Float64 = NDArray[np.float64]
Int8 = NDArray[np.int8]
Float32 = NDArray[np.float32]


def float_linear(rows: Float32, weight: Float32) -> Float64:
    """Give `[T, out]` for rows `[T, in]` and a weight `[out, in]`."""
    product: Float64 = rows.astype(np.float64) @ weight.T.astype(np.float64)
    return product


def int8_linear(rows: Int8, row_scales: Float32, weight: Int8, weight_scales: Float32) -> Float64:
    """Give `[T, out]`; weights are less their zero points, scales `[T, groups]` and `[out, groups]`."""
    num_groups = row_scales.shape[1]
    grouped = rows.reshape(len(rows), num_groups, -1).astype(np.int64)
    weights = weight.reshape(len(weight), num_groups, -1).astype(np.int64)
    sums = np.einsum("tgk,ngk->tng", grouped, weights)
    scales = row_scales[:, None].astype(np.float64) * weight_scales[None].astype(np.float64)
    product: Float64 = (sums * scales).sum(axis=2)
    return product


def activation(name: str, outputs: Float64) -> Float64:
    """Give the activation by its name in `spec.ACTIVATIONS`."""
    return ACTIVATIONS[name](outputs)


def _erf(x: Float64) -> Float64:
    values: Float64 = np.vectorize(math.erf, otypes=[np.float64])(x)
    return values


ACTIVATIONS: dict[str, Callable[[Float64], Float64]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + _erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
}


def gated(name: str, outputs: Float64) -> Float64:
    """Give `[T, out / 2]` for outputs that come as 16 gates, then their 16 factors."""
    pairs = outputs.reshape(len(outputs), -1, 2, PANEL)
    gates, factors = pairs[:, :, 0], pairs[:, :, 1]
    bent: Float64 = activation(name, gates) * factors
    return bent.reshape(len(outputs), -1)
