"""Text and IR: the parser (text -> IR) and the printer (IR -> text)."""

if __name__ != "mlcc.grammar":
    raise ImportError("import mlcc.grammar, not " + __name__)
