"""Properties of the terminal (colour, cursor) and the verbosity of a command."""

from __future__ import annotations

import click

from mlcc.colors import has_color as has_color
from mlcc.colors import is_terminal as is_terminal

QUIET, NORMAL, VERBOSE = -1, 0, 1


def verbosity() -> int:
    """Return the verbosity of the current command: QUIET (-q), NORMAL or VERBOSE (-v)."""
    context = click.get_current_context(silent=True)
    settings = (context.find_root().obj or {}) if context is not None else {}
    return int(settings.get("verbosity", NORMAL))
