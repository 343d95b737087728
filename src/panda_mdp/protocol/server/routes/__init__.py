"""What the server answers, path by path."""
