"""Attention over a paged KV cache: append this step's keys and values, then attend."""
