"""Layer norm of rows."""
