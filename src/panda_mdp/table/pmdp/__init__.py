"""Mechanisms as `.pmdp` files: table, problem and certificate, to the last bit."""
