"""Token layout: grids, patches, where each token stands, and caches of what follows from that."""
