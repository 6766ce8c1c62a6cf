"""The command `hpcomm`: finds the sub-command, and turns errors into messages and exit codes.

A sub-command is a module ``hpcomm/cli/NAME.py`` with a `typer.Typer` called ``app`` that holds one
command. It is imported when it is needed and imports what is heavy inside of its function, so that
`hpcomm --help` works at once and without frameworks.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from hpcomm import __version__
from hpcomm.errors import HpcommError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

# In the order of the help text.
COMMANDS = ("run", "train", "verify", "info")
EXIT_FAILURE = 1


class LazyGroup(TyperGroup):
    """A group whose sub-commands are modules."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the sub-commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a sub-command; None if there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hpcomm.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="hpcomm",
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"hpcomm {__version__}")
        raise typer.Exit


@app.callback()
def hpcomm(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Communication and hybrid-parallel training for deep networks over many processes."""
    del version


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process.

    The exit code is 0 for success, 2 for wrong usage, 130 after Ctrl-C, else 1 with one message.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="hpcomm")
    except HpcommError as error:
        from hpcomm.launch import hook

        if not hook.fail(error):
            sys.stderr.write(f"hpcomm: {type(error).__name__}: {error}\n")
        sys.exit(EXIT_FAILURE)
