"""Legality analyses of blocks, loops and regions, which primitives consult before they change anything."""
