"""Text to syntax tree: lexer, LALR automaton, tree, and what is wrong with a text that does not parse."""
