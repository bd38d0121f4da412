"""Options of passes and targets, `name{key=value}`: parsing, printing and types."""
