"""docs/cli.md, made from the commands themselves: ``python -m unmix_cli.docs > docs/cli.md``."""

import click

from .main import COMMANDS, cli

HEAD = """# The command line

Made by `make docs` from the commands themselves; a test compares the two. Data goes to stdout, everything else to
stderr. Exit codes: 0 done and certified; 1 failed, an output exists, or pixels of an exact solver are not certified;
2 the command line is wrong; 3 the input is wrong; 4 of many scenes some failed; 5 the device asked for is not there or
failed; 130 and 143 stopped by Ctrl-C and SIGTERM.
"""


def command_line_page() -> str:
    """The page, as Markdown."""
    sections = [HEAD, "## unmix\n", fenced(cli, "unmix", None)]
    parent = click.Context(cli, info_name="unmix")
    for name in COMMANDS:
        command = cli.get_command(parent, name)
        assert command is not None
        sections += [f"## unmix {name}\n", fenced(command, name, parent)]
        inner = click.Context(command, info_name=name, parent=parent)
        for each, one in getattr(command, "commands", {}).items():
            sections += [f"### unmix {name} {each}\n", fenced(one, each, inner)]
    return "\n".join(sections)


def fenced(command: click.Command, name: str, parent: click.Context | None) -> str:
    """The help of a command, 100 columns wide."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    return f"```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    click.echo(command_line_page(), nl=False)
