"""`mlcc cache stat|clear`."""

from __future__ import annotations

import click


@click.group("cache")
def command() -> None:
    """Look at the cache of compiled objects, or empty it.

    What `mlcc run`, `compile` and `bench` made from a text file is kept, and found again as long as the text, the files
    it names, the options, the machine and mlcc are the same. MLCC_CACHE=0 switches this off; MLCC_CACHE_DIR and
    MLCC_CACHE_SIZE (MiB, default 1024) say where and how much.
    """


@command.command("stat")
def stat() -> int:
    """Say where the cache is and what it holds."""
    from mlcc.cache.folder import store

    place = store()
    if place is None:
        click.echo("there is no cache: it is switched off, or no folder for it is ours alone")
        return 0
    usage = place.stat()
    click.echo(f"folder   {usage.folder}")
    click.echo(f"entries  {usage.entries}")
    click.echo(f"size     {usage.bytes / (1 << 20):.1f} MiB of at most {usage.limit / (1 << 20):.0f}")
    return 0


@command.command("clear")
def clear() -> int:
    """Remove everything from the cache."""
    from mlcc.cache.folder import store

    place = store()
    gone = 0 if place is None else place.clear()
    click.echo(f"removed {gone} {'entry' if gone == 1 else 'entries'}")
    return 0
