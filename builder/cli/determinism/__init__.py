"""The proof of `builder verify --determinism`: the same requests served in many ways, compared bit by bit."""
