"""Root-mean-square norm of rows."""
