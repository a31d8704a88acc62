"""Encodings that bias the scores, one a file."""
