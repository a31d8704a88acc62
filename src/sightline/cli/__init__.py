"""The command line: thin verbs (`commands/`, one a file) and the door that checks configurations."""
