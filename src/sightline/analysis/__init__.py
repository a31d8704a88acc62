"""Computes what heads do; draws nothing."""
