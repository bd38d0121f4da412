"""What primitives ask of blocks, loops and regions before they change anything."""
