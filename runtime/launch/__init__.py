"""Read launch plans and execute them on a device, hardware or emulated."""
