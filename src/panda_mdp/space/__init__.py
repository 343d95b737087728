"""Records and how far apart they are: metrics, tiles, domains."""
