"""Many runs by one file: the cells of a grid or of a search, shared by workers that join and leave as they like."""
