"""Diagnostic codes: syntax."""

CODES: dict[str, tuple[str, str]] = {
    "E0101": (
        "syntax error",
        "The text does not follow the grammar at the marked place. The message names what is allowed there. The rest "
        "of the file is still checked: the line is skipped, not its block.",
    ),
    "E0102": (
        "unbalanced brackets",
        "A bracket is never closed, is closed by one of another kind, or is closed without being opened. The mark is "
        "on the opening bracket where there is one.",
    ),
    "E0103": (
        "wrong indentation",
        "Blocks are marked by indentation, as in Python: the lines of a block are indented alike, and deeper than the "
        "line ending in `:` that opens it. An empty block is written `pass`.",
    ),
    "E0104": (
        "tabs and spaces mixed",
        "How deep this line is indented depends on how wide a tab is. Indent with spaces only.",
    ),
    "E0105": (
        "malformed string",
        "A string is not closed on its line (or, with triple quotes, not at all), has a malformed escape, or is of a "
        "kind that the language does not have: f-strings and byte strings.",
    ),
    "E0106": (
        "malformed number or stray character",
        "A number has a digit or letter that does not belong to it, or the text has a character that starts no token.",
    ),
    "E0107": (
        "nested too deeply",
        "Brackets can be nested at most 200 deep, blocks 100 deep, and expressions 400 nodes deep.",
    ),
    "E0108": (
        "not a text",
        "The file holds a NUL byte or is not UTF-8. Perhaps it is an object file, an archive or an array file.",
    ),
    "E0109": (
        "malformed statement or call",
        "The text follows the grammar but has no meaning: the target of an assignment is not a name, an element "
        "or a tuple of these; an argument is given twice; a positional argument follows a keyword argument.",
    ),
    "E0110": (
        "not part of the language",
        "Python has this construct, but the language of modules and schedule scripts does not.",
    ),
    "E0111": (
        "a text of a newer version",
        "The comment `# mlc N` at the top of a text or a schedule script states its version. It grows only when an "
        "older mlcc would misunderstand the text, so this one does not try. Install a newer mlcc. Texts of older "
        "versions, and those without the comment, are always read; `mlcc upgrade` writes them as today's.",
    ),
    "E0112": (
        "a file that cannot be upgraded",
        "`mlcc upgrade` rewrites older spellings of a text and keeps its comments. Here the result would mean "
        "something else, or lose a comment, so the file stays as it is; it is read as it is. `mlcc passes FILE -p ''` "
        "prints it in today's form, without most comments. Artifacts are not upgraded: they are compiled again.",
    ),
}
