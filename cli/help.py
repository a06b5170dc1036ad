"""Help of commands with many options: the most used options or, with ``--help-all``, all of them in groups."""

from typing import Any

import click

from .options import DECLARED

# Headings of the options that are not settings of a run: some, by the names of their parameters, and all others.
OF_MESSAGES = ("as_json", "verbose", "quiet", "log_file")
MESSAGES, OTHERS = "JSON and log", "Scenes and exit code"
# Options that are not settings of a run and are in the short help.
FIRST_OTHERS = {"--list", "--scheduler", "--workers", "--help", "--help-all"}
# Key in the context of a command: whether help shows all options.
ALL = "unmix_cli.help_all"


def group_of(option: click.Option) -> str:
    """Return the heading of an option."""
    one = DECLARED.get(option.name or "")
    if one is not None:
        return one.group
    return MESSAGES if option.name in OF_MESSAGES else OTHERS


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
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=show_all,
                allow_from_autoenv=False,
                help="Show all options, in groups, and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"First": []}
        hidden = 0
        for parameter in self.get_params(ctx):
            record, one = parameter.get_help_record(ctx), DECLARED.get(parameter.name or "")
            if record is None or not isinstance(parameter, click.Option):
                continue
            is_first = one.is_first if one is not None else not FIRST_OTHERS.isdisjoint(parameter.opts)
            if ctx.meta.get(ALL):
                groups.setdefault(group_of(parameter), []).append(record)
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
