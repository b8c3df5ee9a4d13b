"""The portable target: the graph in standard operations, run by stock ONNX Runtime on any CPU."""
