"""Help of commands with many options: the most used options or, with ``--help-all``, all of them in groups."""

from typing import Any

import click

from .options import DECLARED

# Heading of the options that are not settings of a run, and those of them that the short help shows.
OTHERS, FIRST_OTHERS = (
    "Scenes, workers, log and exit code",
    {"--list", "--scheduler", "--workers", "--help", "--help-all"},
)
# Key in the context of a command: whether help shows all options.
ALL = "unmix_cli.help_all"


def show_all(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the help with all options, and exit."""
    if wanted and not context.resilient_parsing:
        context.meta[ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class Grouped(click.Command):
    """A command whose help has groups of options."""

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.params.append(
            click.Option(
                ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show_all, allow_from_autoenv=False,
                help="Show all options, in groups, and exit.",
            )
        )  # fmt: skip

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"First": []}
        hidden = 0
        for parameter in self.get_params(ctx):
            record, one = parameter.get_help_record(ctx), DECLARED.get(parameter.name or "")
            if record is None or not isinstance(parameter, click.Option):
                continue
            is_first = one.is_first if one is not None else not FIRST_OTHERS.isdisjoint(parameter.opts)
            if ctx.meta.get(ALL):
                groups.setdefault(OTHERS if one is None else one.group, []).append(record)
            elif is_first:
                groups["First"].append(record)
            else:
                hidden += 1
        for name, records in groups.items():
            if records:
                with formatter.section("Options" if name == "First" else name):
                    formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"There are {hidden} more options: --help-all.")
