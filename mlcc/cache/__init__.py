"""The cache of compiled objects: a private folder of bounded size, and the objects in it."""
