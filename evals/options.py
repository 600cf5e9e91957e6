"""The options of commands that measure: numbers above 0, unless an option says otherwise."""

import math
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """An option that is a number of its default's type. The default is added to its help."""

    default: float
    help: str
    may_be_zero: bool = False
    most: float = math.inf

    def read(self, written: str) -> float:
        number = type(self.default)(written)
        if number < 0 or number > self.most or (number == 0 and not self.may_be_zero):
            least = "at least 0" if self.may_be_zero else "above 0"
            raise ArgumentTypeError(f"must be {least}{'' if self.most == math.inf else f' and at most {self.most:g}'}")
        return number


def add_numbers(parser: ArgumentParser, numbers: Mapping[str, Number]) -> None:
    for name, number in numbers.items():
        shown = f"{number.help} (default {number.default:,})"
        parser.add_argument(f"--{name.replace('_', '-')}", type=number.read, default=number.default, help=shown)
