"""The data sets, one a file; a file's name is the data set's name. See `sightline.data.open`."""
