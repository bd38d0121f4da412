"""`python -m mlcc`."""

from mlcc.cli.main import main

main()
