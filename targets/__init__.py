"""The backends: code for a target, as an artifact."""

if __name__ != "mlcc.targets":
    raise ImportError("import mlcc.targets, not " + __name__)
