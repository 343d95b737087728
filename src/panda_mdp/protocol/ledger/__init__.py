"""A user's books: limits, charges, and what was drawn, encrypted."""
