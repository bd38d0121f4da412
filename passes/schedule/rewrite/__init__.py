"""How primitives change functions: the edits that several of them share."""
