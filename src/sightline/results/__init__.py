"""Rows of results: one module for each kind of row."""
