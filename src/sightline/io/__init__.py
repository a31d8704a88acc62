"""Files: checked configurations, atomic writes, checkpoints, run folders and their lock."""
