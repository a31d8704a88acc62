"""Images to tokens, one embedder a file: found by its folder."""
