"""The native CPU engine: a flat plan of fused operations over packed weights, run by our own C++ library."""
