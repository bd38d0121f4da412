"""Passes over relax functions, one file each, and their shared helpers."""
