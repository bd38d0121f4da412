"""Search for schedules: measure ways to schedule a kernel, and keep what is faster than the rules' own."""
