"""Schedules for GPUs by rules: blocks and threads, shared memory, tiles of a thread in registers."""
