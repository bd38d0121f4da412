"""Rule-based schedules for GPUs: blocks and threads, shared memory, register tiles."""
