"""The command line: thin verbs (`commands/`, one a file) and what they share."""
