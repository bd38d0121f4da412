"""`mlcc lsp`."""

from __future__ import annotations

import importlib.util

import click


@click.command("lsp")
@click.option("--stdio", is_flag=True, help="Serve over standard input and output, as is done anyway.")
def command(stdio: bool) -> None:
    """Serve an editor: findings as you type, hover, definitions, completion, formatting.

    Speaks the Language Server Protocol over standard input and output. Needs pygls: `pip install 'mlcc[lsp]'`.
    """
    from mlcc.errors import CompileError, error

    if importlib.util.find_spec("pygls") is None:
        raise CompileError(error("E0019", "`mlcc lsp` needs pygls", help="pip install 'mlcc[lsp]'"))
    from mlcc.lsp.server import serve

    serve()
