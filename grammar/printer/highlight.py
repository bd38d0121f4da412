"""Texts on a terminal: highlighted by Pygments where that is installed and the terminal has colours."""

from __future__ import annotations

import sys

from mlcc.colors import has_color


def print_highlighted(text: str) -> None:
    """Print a text to standard output, with colours on a terminal (see `has_color` for NO_COLOR and FORCE_COLOR)."""
    sys.stdout.write(_highlighted(text) if has_color("auto", sys.stdout) else text)


def _highlighted(text: str) -> str:
    try:
        from pygments import highlight
        from pygments.formatters import TerminalFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return text
    colored: str = highlight(text, PythonLexer(stripnl=False), TerminalFormatter())
    return colored
