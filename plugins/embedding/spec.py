"""The contract of Embedding: row `token_ids[t]` of a table `[V, hidden]` for each token, in float32.

A table of integers gives `(number - zero point) * scale` of its group. Ids are in the vocabulary: the engine checks them.
"""

NAME = "Embedding"
FORMS = ("float32", "bfloat16", "int8", "int4", "uint4")
