"""The version of relaxd, as pyproject.toml and CHANGELOG.md have it."""

VERSION = "0.1.0"
