"""Converters of ATen operators to relax, a module per operator family; see `mlcc.frontend.aten.table`."""
