"""What is changed in training images, one kind a file, found by its folder. See `sightline.data.augmenting`."""
