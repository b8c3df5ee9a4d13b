"""The OpenAI shim: a stateless HTTP application and a client of Triton's `forerun` face, like any other."""
