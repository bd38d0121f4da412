"""Schedule scripts (`.mls`): the language that traces are printed in."""
