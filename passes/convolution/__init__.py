"""Convolutions: what they cost, and Winograd's algorithm."""
