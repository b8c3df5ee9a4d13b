"""Rounding of activations to int8 in groups."""
