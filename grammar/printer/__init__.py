"""IR to text; the entry point is `printer.script`."""
