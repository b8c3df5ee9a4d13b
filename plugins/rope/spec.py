"""The contract of Rope: queries and keys are turned by the angles of their positions.

The first R dimensions of a head are turned, all of them unless told otherwise. Dimension i is paired with dimension
i + R / 2, or 2 i with 2 i + 1 where neighbours are paired; cosines and sines come from tables `[positions, R / 2]`.
"""

NAME = "Rope"
