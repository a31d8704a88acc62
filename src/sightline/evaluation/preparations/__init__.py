"""How a suite's images are prepared; one way a file."""
