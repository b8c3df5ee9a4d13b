"""Graphs of models: standard ONNX operations and Forerun's own few, held as onnx-ir."""
