"""Passes over relax functions, one file each, and what they share."""
