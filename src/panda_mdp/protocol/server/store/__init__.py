"""What the server knows, in SQLite or PostgreSQL."""
