"""The machine, its processes and signals, and the ranks of a distributed run."""
