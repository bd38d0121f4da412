"""`mlcc cache stat|clear`."""

from __future__ import annotations

import click


@click.group("cache")
def command() -> None:
    """Show or empty the cache of compiled objects.

    The objects that `mlcc run`, `compile` and `bench` make from a text file are cached, and reused as long as the text,
    the files it names, the options, the machine and mlcc are the same. MLCC_CACHE=0 disables the cache; MLCC_CACHE_DIR
    sets its folder and MLCC_CACHE_SIZE its size limit (MiB, default 1024).
    """


@command.command("stat")
def stat() -> int:
    """Show the folder, the number of entries and the size of the cache."""
    from mlcc.cache.folder import default_cache

    place = default_cache()
    if place is None:
        click.echo("there is no cache: it is disabled, or no folder is private to this user")
        return 0
    usage = place.stat()
    click.echo(f"folder   {usage.folder}")
    click.echo(f"entries  {usage.entries}")
    click.echo(f"size     {usage.bytes / (1 << 20):.1f} MiB of at most {usage.limit / (1 << 20):.0f}")
    return 0


@command.command("clear")
def clear() -> int:
    """Remove everything from the cache."""
    from mlcc.cache.folder import default_cache

    place = default_cache()
    gone = 0 if place is None else place.clear()
    click.echo(f"removed {gone} {'entry' if gone == 1 else 'entries'}")
    return 0
