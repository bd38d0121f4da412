"""IR to text; `printer.script` is where it starts."""
