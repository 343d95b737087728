"""Loops over arrays, compiled by numba or JAX, or in NumPy; chosen explicitly."""
