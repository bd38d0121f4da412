"""`mlcc help run`, `mlcc help E0312`."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("topic", required=False)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Show the help of a command, or explain a topic; without TOPIC, list the commands."""
    group = ctx.find_root()
    assert isinstance(group.command, click.Group)
    if topic is None:
        click.echo(group.get_help())
        return
    if topic not in group.command.list_commands(group):
        from mlcc.cli.cmd_explain import command as explain
        from mlcc.cli.cmd_explain import is_topic

        if is_topic(topic):
            ctx.invoke(explain, topics=(topic,))
            return
    _, wanted, _ = group.command.resolve_command(group, [topic])
    assert wanted is not None
    click.echo(wanted.get_help(click.Context(wanted, info_name=topic, parent=group)))
