"""Loading artifacts and running them. Needs only the standard library and NumPy."""

if __name__ != "mlcc.runtime":
    raise ImportError("import mlcc.runtime, not " + __name__)
