"""The library's version: the only place that says it."""

__version__ = "0.3.0"
