"""How benchmarks hand over their figures."""
