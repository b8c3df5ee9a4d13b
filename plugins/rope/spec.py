"""The contract of Rope: queries and keys are turned by the angles of their positions.

Dimension i of a head is paired with dimension i + D / 2; cosines and sines come from tables `[positions, D / 2]`.
"""

NAME = "Rope"
