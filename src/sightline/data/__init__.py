"""Everything that produces images with labels: sources, views of an image, and the loader."""
