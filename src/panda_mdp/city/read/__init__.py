"""Maps in: road networks from files, each format in its own module."""
