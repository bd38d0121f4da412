"""Launch plans: reading them, and carrying them out on a device, hardware or emulated."""
