"""The command line: `main` has the group `mlcc`, and `cmd_NAME` has the command NAME."""
