"""What models are tested on together; one suite a file."""
