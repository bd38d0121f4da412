"""Networks and products in 8, 4 and 16 bits beside the peers."""
