"""What is measured of a model's outputs, one kind a file, found by its folder. See `sightline.metrics.base`."""
