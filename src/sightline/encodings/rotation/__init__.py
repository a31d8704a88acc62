"""Encodings that turn queries and keys, one a file."""
