"""How each ATen operator is said in relax, a module per family; see `mlcc.frontend.aten.table`."""
