"""Road networks, what people do on them, and what an error costs."""
