"""The cache of compiled objects: a private folder of bounded size, and what is kept there."""
