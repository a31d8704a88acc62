"""The verbs: each file here is one command, named as the file, with its function of the same name."""
