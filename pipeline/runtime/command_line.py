"""Command lines: what is wrong with one is said in one line."""

import argparse
from typing import NoReturn

from pipeline.runtime.errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse's parser, with the script's docstring as its help, no abbreviations, and errors as UserErrors."""

    def __init__(self, description: str | None = None, add_help: bool = True):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, add_help=add_help, allow_abbrev=False, formatter_class=formatter)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:200]}: see --help")
