"""Uploaded files, read without executing anything of them.

A reader parses a file by its schema with the standard library alone, checks every part against an allowlist, and
gives either a new, clean file or plain values, of which only those reach PyTorch. What it cannot vouch for it
refuses with a Problem. No file of this folder imports torch: `tests/compiler/readers` holds them to that.
"""
