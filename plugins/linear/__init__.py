"""Rows times a weight, with what follows fused: bias, residual, gate, rounding to int8."""
