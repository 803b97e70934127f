"""The version, in a module that imports nothing, so that the build reads it without httpx or numpy."""

__version__ = "0.1.0"
