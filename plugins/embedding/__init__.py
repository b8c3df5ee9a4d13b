"""Rows of a table by token id."""
