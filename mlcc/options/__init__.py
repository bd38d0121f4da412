"""Options in braces, `name{key=value}`, as passes and targets have them: reading and printing, and types."""
