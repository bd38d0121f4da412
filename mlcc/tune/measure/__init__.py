"""Build candidates, run them in separate processes, check their results and measure their times."""
