"""The quality gate: what an artifact's engine says of a text and of questions, held against a float32 reference."""
