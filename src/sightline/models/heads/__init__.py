"""What a task makes of all tokens, one head a file: found by its folder, as those of plug-ins are."""
