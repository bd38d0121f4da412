"""The command `mlcc explain`."""

from __future__ import annotations

import re

import click

from mlcc.cli.options import load_option

_CODE = re.compile(r"[EWew]\d+")


@click.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--list", "listed", is_flag=True, help="List everything that has a page.")
@load_option
def command(topics: tuple[str, ...], listed: bool) -> None:
    """Explain an operator (R.nn.conv2d), an intrinsic (T.exp), a form of the language (T.Buffer), a pass (fuse), a
    schedule primitive (sch.split), a target (llvm), an optimization level (-O2), a variable (MLCC_JOBS), `exit-codes`,
    a diagnostic code (E0312), or a term of the glossary (block).

    Without a topic, list all codes.
    """
    if listed:
        from mlcc.reference.pages import topics as known

        click.echo("\n".join(known()))
        return
    if not topics:
        from mlcc.codes import codes

        for name, (title, _) in sorted(codes().items()):
            click.echo(f"{name}  {title}")
        return
    for number, topic in enumerate(topics):
        click.echo(("\n" if number else "") + "\n\n".join(_pages(topic)))


def is_topic(text: str) -> bool:
    """Return True for a word with the form of a code, and for the name of a page."""
    from mlcc.reference.pages import pages

    return _CODE.fullmatch(text.strip("[]")) is not None or bool(pages(text))


def _pages(topic: str) -> list[str]:
    """Return the pages of a topic. Raises CompileError (E0006) if there are none."""
    from mlcc.codes import codes
    from mlcc.errors import CompileError, did_you_mean, error

    code = topic.strip("[]").upper()
    if _CODE.fullmatch(code):
        entry = codes().get(code)
        if entry is None:
            help = did_you_mean(code, codes()) or "`mlcc explain` lists all"
            raise CompileError(error("E0006", f"there is no code {topic}", help=help))
        title, text = entry
        return [f"{code}: {title}\n\n{click.wrap_text(text, width=100)}"]
    from mlcc.cli.main import COMMANDS
    from mlcc.reference.pages import pages, topics

    found = pages(topic)
    known = [] if found else list(topics())
    found = found or [page for name in known if name.rpartition(".")[2] == topic for page in pages(name)]
    if not found:
        bare = {name.partition(".")[2] or name: name for name in known}
        if topic in COMMANDS:
            help = f"`mlcc help {topic}` shows the help of the command"
        else:
            near = _names_with(topic, known) or did_you_mean(topic, [*known, *bare])
            help = near or "`mlcc explain --list` lists all topics"
        raise CompileError(error("E0006", f"there is no page about `{topic}`", help=help))
    return found


def _names_with(word: str, known: list[str]) -> str | None:
    """Return a sentence about the topics with a part that begins with the word: `R.nn.conv2d` for `conv`."""
    found = [name for name in known if len(word) > 2 and re.search(rf"(?:^|[._-]){re.escape(word)}", name, re.I)]
    if not found:
        return None
    more = f", and {len(found) - 4} more" if len(found) > 4 else ""
    return f"there are {', '.join(f'`{name}`' for name in found[:4])}{more}"
