"""mlcc's kernels and models against installed peers: `python -m bench speed --help`."""
