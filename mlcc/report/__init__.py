"""What people look at: differences between modules and between artifacts."""
