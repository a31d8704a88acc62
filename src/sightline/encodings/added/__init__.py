"""Encodings that add an embedding to the tokens, one a file."""
