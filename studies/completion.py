"""Prints a script with which a shell completes the commands of residual-ebm, their flags, and the values of these.

  residual-ebm completion bash > ~/.local/share/bash-completion/completions/residual-ebm
  residual-ebm completion zsh > ~/.zfunc/_residual-ebm       # with fpath=(~/.zfunc $fpath) before compinit in .zshrc

The script is made once, from the commands' own settings, and starts nothing when a key is pressed. Print it again when
commands have changed.
"""

import ast
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, parser_of, read_settings, setting
from studies.orchestration.console import about, commands, module_of

SHELLS = ("bash", "zsh", "tcsh")
PROGRAM = "residual-ebm"


@dataclass(frozen=True, kw_only=True)
class CompletionSettings(Settings):
    """The shell that is to complete."""

    shell: str = setting(help=f"one of {', '.join(SHELLS)}", choices=SHELLS, positional=True)


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(CompletionSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    print(completion(settings))
    return 0


def completion(settings: CompletionSettings) -> str:
    """The script, which shtab writes from one parser of all commands."""
    try:
        import shtab
    except ImportError:
        raise UserError("completion: shtab writes it: make install, or pip install 'residual-ebm[study]'") from None
    parser = every_command()
    for command in parsers_in(parser):
        for action in command._actions:
            if action.nargs != 0 and action.choices is None:  # most values are paths, and nothing else could be guessed
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=settings.shell)


def every_command() -> ArgumentParser:
    """All commands as one: residual-ebm COMMAND, or residual-ebm GROUP COMMAND, each with its own flags."""
    root = ArgumentParser(PROGRAM)
    groups = {"": root.add_subparsers()}
    for name, path in commands().items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = groups[""].add_parser(group, help=f"commands of {group}").add_subparsers()
        own = parser_of(settings_of(path), None)
        groups[group].add_parser(last, help=about(path).replace("%", "%%"), parents=[own], add_help=False)
    return root


def settings_of(path: Path) -> type[Settings]:
    """The settings that a script reads from its command line: those that its first call with settings names."""
    module = import_module(module_of(path))
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        found = getattr(module, call.args[0].id, None) if call.args and isinstance(call.args[0], ast.Name) else None
        if isinstance(found, type) and issubclass(found, Settings):
            return found
    raise UserError(f"{path}: a command without settings")


def parsers_in(parser: ArgumentParser) -> list[ArgumentParser]:
    """A parser and those of its commands."""
    inner = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    return [parser, *(found for action in inner for own in action.choices.values() for found in parsers_in(own))]


if __name__ == "__main__":
    exit_with(main)
