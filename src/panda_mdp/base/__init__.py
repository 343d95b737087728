"""What knows nothing of privacy: arrays, files, processes."""
