"""Calibration with NVIDIA's modelopt: token rows in, a checkpoint with the scales that they ask for out.

A model is run in torch over samples while modelopt measures what its layers see; what comes out is one of modelopt's
unified checkpoints, which is then read like one that somebody else made. Text is not known here, only ids. torch,
transformers and modelopt come with the extra `quant` and are imported inside functions alone.
"""
