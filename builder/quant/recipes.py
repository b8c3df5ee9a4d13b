"""Formats whose scales are calibrated: what a user asks for, and the format of the numbers that come out."""

RECIPES = {
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "int8-smoothquant": "int8-static",
    "int4-awq": "int4",
}
"""Formats by the names of what makes them."""
