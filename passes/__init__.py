"""The pass manager and the passes."""

if __name__ != "mlcc.passes":
    raise ImportError("import mlcc.passes, not " + __name__)
