"""The Jinja environment of one rendering: what a template may reach, and what it pays for that.

A template reaches the data it was given, the tables of `methods` and `filters`, and five functions. No
attribute of Python is looked up unless a table names it, so there is no way from a value to its class.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, NoReturn

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace, pass_context

from triton_backend.templates.filters import FILTERS, TESTS, meter_of
from triton_backend.templates.meter import (
    CHARACTERS_PER_WORK,
    MAX_GIVEN_BITS,
    Meter,
    OverLimitError,
    TemplateLimits,
    check_bits,
)
from triton_backend.templates.methods import ATTRIBUTES, TEXT_METHODS

MAX_DATE_FORMAT_CHARACTERS = 256
WORK_PER_CALL = 4
"""A call, or weighing a new value, takes as long as about four lookups."""

# Names that only code added to a parsed template can spell.
TICK = " tick"
MEASURED = " measured"
COMPARED = " compared"
SEARCHED = " searched"
CONCATENATED = " concatenated"


class RefusedError(Exception):
    """The template called `raise_exception`; its only argument is the template's message."""


class GenerationBlock(Extension):
    """`{% generation %}`, which marks answers for training; here its body is written as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Runs one rendering within its limits."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, limits: TemplateLimits, clock: Callable[[], datetime]) -> None:
        """Begin with nothing used. `clock` gives the local time that templates may write."""
        self.meter = Meter(limits)
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, GenerationBlock],
            finalize=self.meter.text,
            optimized=False,
            cache_size=0,
        )
        self.filters = {**FILTERS, **ADDED_FILTERS}
        self.tests = dict(TESTS)
        self.globals = {
            "dict": dict,
            "namespace": Namespace,
            "raise_exception": _raise_exception,
            "range": self._range,
            "strftime_now": partial(_strftime_now, clock),
        }

    def _range(self, *bounds: int) -> range:
        for bound in bounds:
            self.meter.keep(bound)
        return safe_range(*bounds)

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the pieces of a text, block or macro."""
        kept = []
        size = 0
        for piece in pieces:
            size += len(piece)
            self.meter.check_size(size)
            kept.append(piece)
        self.meter.spend(size // CHARACTERS_PER_WORK)
        return "".join(kept)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Give an attribute that the tables name, or a member of a mapping."""
        self.meter.spend()
        if isinstance(obj, str) and attribute in TEXT_METHODS:
            return partial(TEXT_METHODS[attribute], self.meter, obj)
        if attribute in _attributes_of(obj):
            return getattr(obj, attribute)
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if attribute.startswith("_"):
            return self.unsafe_undefined(obj, attribute)
        if isinstance(obj, Undefined):
            return obj[attribute]  # raises an error that says what is undefined
        missing = self.undefined(obj=obj, name=attribute)
        return getattr(obj, attribute, missing) if isinstance(obj, Namespace) else missing

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Give a member of data, or else an attribute of that name."""
        self.meter.spend()
        if isinstance(obj, dict | str | list | tuple | range | Undefined):
            try:
                return obj[argument]
            except (TypeError, LookupError):
                pass
        if isinstance(argument, str):
            return self.getattr(obj, argument)
        return self.undefined(obj=obj, name=argument)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template may call; nothing else comes into its reach."""
        self.meter.spend(WORK_PER_CALL)
        if not isinstance(obj, Macro | LoopContext):
            for value in (_owner_of(obj), *args, *kwargs.values()):
                self.meter.read(value)
        return self.meter.keep(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Do arithmetic, and join or repeat texts and lists."""
        self.meter.spend()
        if isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            self._check_sequences(operator, left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() * abs(right), MAX_GIVEN_BITS)
        return self.meter.keep(super().call_binop(context, operator, left, right))

    def _check_sequences(self, operator: str, left: Any, right: Any) -> None:
        if operator == "%":
            raise SecurityError("text can't be formatted with %")
        if operator == "*":
            times = left if isinstance(left, int) else right
            repeated = right if isinstance(left, int) else left
            self.meter.check_size(self.meter.size(repeated) * int(times))
        elif operator == "+":
            self.meter.check_size(self.meter.size(left) + self.meter.size(right))


def _attributes_of(obj: object) -> frozenset[str]:
    return next((names for kind, names in ATTRIBUTES.items() if isinstance(obj, kind)), frozenset())


def _owner_of(method: object) -> object:
    """Give the value whose method this is, unless it is a mapping: their methods look at one place."""
    owner = method.args[-1] if isinstance(method, partial) else getattr(method, "__self__", None)
    return None if isinstance(owner, dict) else owner


def _raise_exception(message: object = "") -> NoReturn:
    raise RefusedError(message)


def _strftime_now(clock: Callable[[], datetime], format: str) -> str:  # noqa: A002
    if len(format) > MAX_DATE_FORMAT_CHARACTERS:
        raise OverLimitError(f"date format ({MAX_DATE_FORMAT_CHARACTERS} characters)")
    return clock().strftime(format)


@pass_context
def _tick(context: Context, value: object) -> object:
    meter_of(context).spend()
    return value


@pass_context
def _measured(context: Context, value: object) -> object:
    """Weigh a list, tuple or mapping that the template spells out, or a slice."""
    meter = meter_of(context)
    meter.spend(WORK_PER_CALL)
    return meter.keep(value)


@pass_context
def _compared(context: Context, value: object) -> object:
    meter = meter_of(context)
    meter.spend()
    meter.read(value)
    return value


@pass_context
def _searched(context: Context, value: object) -> object:
    meter = meter_of(context)
    meter.spend()
    meter.read(None if isinstance(value, dict) else value)  # a mapping finds a key at once
    return value


@pass_context
def _concatenated(context: Context, values: Iterable[object]) -> str:
    meter = meter_of(context)
    return meter.keep(context.environment.concat(map(meter.text, values)))


ADDED_FILTERS = {
    TICK: _tick,
    MEASURED: _measured,
    COMPARED: _compared,
    SEARCHED: _searched,
    CONCATENATED: _concatenated,
}
