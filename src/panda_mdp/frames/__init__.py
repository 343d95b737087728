"""Frames in, frames out: perturb columns of places or records, on one core or on a cluster."""
