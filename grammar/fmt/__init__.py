"""The canonical layout of a text, which `mlcc fmt` writes."""
