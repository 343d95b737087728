"""Compiled inner loops (numba). Nothing outside imports these at import time: without numba the
callers fall back to NumPy, slower and with the same answers."""
