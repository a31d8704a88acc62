"""What is measured of a model from the inside, one measure a file."""
