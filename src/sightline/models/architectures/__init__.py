"""What a model does with its tokens, one architecture a file: found by its folder."""
