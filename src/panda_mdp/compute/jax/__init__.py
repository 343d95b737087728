"""Loops on accelerators (JAX)."""
