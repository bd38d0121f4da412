"""The tokens of the language as regular expressions: one table for every highlighter (Pygments, `mlcc report`).

The expressions keep to what Python's `re` (with MULTILINE) and JavaScript's RegExp (with `m` and `y`) share.
"""

from __future__ import annotations

# the grammar's keywords, as `grammar/mlc.lark` has them
CONSTANTS = ("True", "False", "None")
WORD_OPERATORS = ("and", "or", "not", "in", "is")
IMPORTS = ("import", "from", "as")
KEYWORDS = (
    "assert", "break", "class", "continue", "def", "elif", "else", "for", "if", "lambda", "pass", "return", "while",
    "with",
)  # fmt: skip
DTYPES = r"(?:u?int|b?float|index)\d+(?:x\d+)?|float8_\w+|float4_\w+|bool|handle|void"


def _any_of(words: tuple[str, ...]) -> str:
    return rf"\b(?:{'|'.join(words)})\b"


# (expression, kind of the match or of each group), the first that matches counts; kinds as Pygments calls its tokens
TOKEN_RULES: tuple[tuple[str, str | tuple[str, ...]], ...] = (
    (r"[^\S\n]+|\n", "Whitespace"),
    (r"(#)(\s*PASSES:)(.*)$", ("Comment.Single", "Comment.Special", "Comment.Preproc")),
    (r"#.*$", "Comment.Single"),
    (r"(@)([\w.]+)", ("Operator", "Name.Decorator")),
    (r"(def)(\s+)(\w+)", ("Keyword", "Whitespace", "Name.Function")),
    (r"(class)(\s+)(\w+)", ("Keyword", "Whitespace", "Name.Class")),
    (_any_of(IMPORTS), "Keyword.Namespace"),
    (_any_of(CONSTANTS), "Keyword.Constant"),
    (_any_of(WORD_OPERATORS), "Operator.Word"),
    (_any_of(KEYWORDS), "Keyword"),
    (r"[rRbBfFuU]{0,2}(\"\"\"|\x27\x27\x27)(?:\\.|[^\\])*?\1", "String"),
    (rf"([\"\x27])(?:{DTYPES})\1", "Keyword.Type"),
    (r"[rRbBfFuU]{0,2}\"(?:\\.|[^\"\\\n])*\"?", "String"),
    (r"[rRbBfFuU]{0,2}\x27(?:\\.|[^\x27\\\n])*\x27?", "String"),
    (r"0[xX][0-9a-fA-F_]+", "Number.Hex"),
    (r"0[oO][0-7_]+", "Number.Oct"),
    (r"0[bB][01_]+", "Number.Bin"),
    (
        r"\d[\d_]*(?:\.[\d_]*(?:[eE][+-]?\d[\d_]*)?|[eE][+-]?\d[\d_]*)|\.\d[\d_]*(?:[eE][+-]?\d[\d_]*)?",
        "Number.Float",
    ),
    (r"\d[\d_]*", "Number.Integer"),
    (rf"\b(T)(\.)({DTYPES})\b", ("Name.Namespace", "Punctuation", "Keyword.Type")),
    (r"\b([RTI]|relax|tir)(\.)([\w.]+)", ("Name.Namespace", "Punctuation", "Name.Builtin")),
    (r"\b(sch)(\.)(\w+)", ("Name.Variable.Instance", "Punctuation", "Name.Builtin")),
    (r"\b(cls|range)\b", "Name.Builtin.Pseudo"),
    (r"([^\W\d]\w*)(=)(?=[^\s=])", ("Name.Attribute", "Operator")),  # an argument by name
    (r"[^\W\d]\w*", "Name"),
    (r"->|\*\*=?|//=?|<<=?|>>=?|[-+*/%&|^<>=!]=|[-+*/%&|^~<>=@]", "Operator"),
    (r"\.\.\.|[()\[\]{},.:;\\]", "Punctuation"),
)
