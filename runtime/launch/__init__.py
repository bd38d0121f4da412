"""Launch plans: artifacts whose kernels run on a device, which is a GPU or its emulation."""
