"""Highlighting by Pygments of modules (`.mlc`) and schedule scripts (`.mls`)."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

# the grammar's keywords, as `grammar/mlc.lark` has them
CONSTANTS = ("True", "False", "None")
WORD_OPERATORS = ("and", "or", "not", "in", "is")
IMPORTS = ("import", "from", "as")
KEYWORDS = (
    "assert", "break", "class", "continue", "def", "elif", "else", "for", "if", "lambda", "pass", "return", "while",
    "with",
)  # fmt: skip
DTYPES = r"(?:u?int|b?float|index)\d+(?:x\d+)?|float8_\w+|float4_\w+|bool|handle|void"


class MlcLexer(RegexLexer):  # type: ignore[misc]
    """Modules: functions of TensorIR and relax."""

    name = "mlcc"
    aliases: ClassVar[tuple[str, ...]] = ("mlc", "mlcc", "tvmscript")
    filenames: ClassVar[tuple[str, ...]] = ("*.mlc",)
    url = "https://mlc.ai"
    tokens = {
        "root": [
            (r"[^\S\n]+|\n", Whitespace),
            (r"(#)(\s*PASSES:)(.*)$", bygroups(Comment.Single, Comment.Special, Comment.Preproc)),
            (r"#.*$", Comment.Single),
            (r"(@)([\w.]+)", bygroups(Operator, Name.Decorator)),
            (r"(def)(\s+)(\w+)", bygroups(Keyword, Whitespace, Name.Function)),
            (r"(class)(\s+)(\w+)", bygroups(Keyword, Whitespace, Name.Class)),
            (words(IMPORTS, prefix=r"\b", suffix=r"\b"), Keyword.Namespace),
            (words(CONSTANTS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(WORD_OPERATORS, prefix=r"\b", suffix=r"\b"), Operator.Word),
            (words(KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (r"[rRbBfFuU]{0,2}(\"\"\"|\x27\x27\x27)(?:\\.|[^\\])*?\1", String),
            (rf"([\"\x27])(?:{DTYPES})\1", Keyword.Type),
            (r"[rRbBfFuU]{0,2}\"(?:\\.|[^\"\\\n])*\"?", String),
            (r"[rRbBfFuU]{0,2}\x27(?:\\.|[^\x27\\\n])*\x27?", String),
            (r"0[xX][0-9a-fA-F_]+", Number.Hex),
            (r"0[oO][0-7_]+", Number.Oct),
            (r"0[bB][01_]+", Number.Bin),
            (
                r"\d[\d_]*(?:\.[\d_]*(?:[eE][+-]?\d[\d_]*)?|[eE][+-]?\d[\d_]*)|\.\d[\d_]*(?:[eE][+-]?\d[\d_]*)?",
                Number.Float,
            ),
            (r"\d[\d_]*", Number.Integer),
            (rf"\b(T)(\.)({DTYPES})\b", bygroups(Name.Namespace, Punctuation, Keyword.Type)),
            (r"\b([RTI]|relax|tir)(\.)([\w.]+)", bygroups(Name.Namespace, Punctuation, Name.Builtin)),
            (r"\b(sch)(\.)(\w+)", bygroups(Name.Variable.Instance, Punctuation, Name.Builtin)),
            (r"\b(cls|range)\b", Name.Builtin.Pseudo),
            (r"([^\W\d]\w*)(=)(?=[^\s=])", bygroups(Name.Attribute, Operator)),  # an argument by name
            (r"[^\W\d]\w*", Name),
            (r"->|\*\*=?|//=?|<<=?|>>=?|[-+*/%&|^<>=!]=|[-+*/%&|^~<>=@]", Operator),
            (r"\.\.\.|[()\[\]{},.:;\\]", Punctuation),
        ]
    }


class MlsLexer(MlcLexer):
    """Schedule scripts: calls of primitives, with loops and functions around."""

    name = "mlcc schedule"
    aliases: ClassVar[tuple[str, ...]] = ("mls",)
    filenames: ClassVar[tuple[str, ...]] = ("*.mls",)
