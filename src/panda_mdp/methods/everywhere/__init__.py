"""Tables that are private for every point of an area, and what the best of them can lose."""
