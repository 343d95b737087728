"""Computing: draws, kinds of cells, the runner, and results on disk."""
