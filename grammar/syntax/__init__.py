"""Text to syntax tree: lexer, LALR automaton, tree, and diagnostics for texts that do not parse."""
