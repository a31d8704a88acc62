"""The command line: thin commands (`commands/`, one a file) and what they share."""
