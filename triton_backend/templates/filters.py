"""Every filter and test that a template may use, each paid for and bounded in what it makes.

Most are Jinja's own behind a meter. Those that turn values into text, or can make much out of little,
are written here: they take data only, and work out the size of the result before making it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import pass_context
from markupsafe import escape

from triton_backend.templates import methods
from triton_backend.templates.meter import ELEMENT_SIZE, Meter, NotDataError, OverLimitError

Function = Callable[..., Any]

MAX_ADDED = 256
"""Largest indentation and separator, in characters."""
MAX_DIGITS = 64


def meter_of(context: Context) -> Meter:
    """Give the meter of the rendering that `context` belongs to."""
    meter: Meter = context.environment.meter  # type: ignore[attr-defined]
    return meter


def _metered(function: Function, leading: Callable[[Context], tuple[object, ...]]) -> Function:
    """Put a meter before a function of Jinja, which takes `leading` arguments before the value."""

    @pass_context
    def run(context: Context, *args: Any, **kwargs: Any) -> object:
        meter = meter_of(context)
        meter.spend()
        for value in (*args, *kwargs.values()):
            meter.read(value)
        return meter.keep(function(*leading(context), *args, **kwargs))

    return run


def _lazy(function: Function, leading: Callable[[Context], tuple[object, ...]]) -> Function:
    """Count a function of Jinja whose result is paid for piece by piece as it is used."""

    @pass_context
    def run(context: Context, value: object, *args: Any, **kwargs: Any) -> object:
        meter = meter_of(context)
        meter.spend()
        if isinstance(value, Iterator):
            value = list(value)  # so that lazy values never pile up, each inside the next
        result = function(*leading(context), value, *args, **kwargs)
        return meter.each(result) if isinstance(result, Iterator) else meter.keep(result)

    return run


def _light(function: Function, leading: Callable[[Context], tuple[object, ...]]) -> Function:
    """Count a call of a function of Jinja that looks at one place of its values only."""

    @pass_context
    def run(context: Context, *args: Any, **kwargs: Any) -> object:
        meter_of(context).spend()
        return function(*leading(context), *args, **kwargs)

    return run


def _of_text(function: Function) -> Function:
    """Make a filter from a function of the meter and the text of the value."""

    @pass_context
    def run(context: Context, value: object, *args: Any, **kwargs: Any) -> object:
        meter = meter_of(context)
        text = meter.text(value)
        meter.read(text)
        return meter.keep(function(meter, text, *args, **kwargs))

    return run


def _nothing(_: Context) -> tuple[object, ...]:
    return ()


def _environment(context: Context) -> tuple[object, ...]:
    return (context.environment,)


def _context(context: Context) -> tuple[object, ...]:
    return (context,)


def _replace(meter: Meter, text: str, old: object, new: object, count: int | None = None) -> str:
    times = -1 if count is None else count
    return methods.replace(meter, text, meter.text(old), meter.text(new), times)


def _title(meter: Meter, text: str) -> object:
    meter.spend(len(text) // 2)  # a step of Python for each word
    return JINJA_FILTERS["title"](text)


def _indent(
    meter: Meter, text: str, width: int | str = 4, first: bool = False, blank: bool = False
) -> object:
    _check_added("indent", width)
    added = width if isinstance(width, int) else len(width)
    meter.check_size(len(text) + added * (len(methods.splitlines(meter, text)) + 1))
    return JINJA_FILTERS["indent"](text, width, first, blank)


@pass_context
def _join(context: Context, values: Any, d: object = "", attribute: str | int | None = None) -> str:
    meter = meter_of(context)
    if attribute is not None:
        values = map(make_attrgetter(context.environment, attribute), values)
    return meter.keep(methods.join(meter, meter.text(d), values))


@pass_context
def _list(context: Context, values: Iterable[object]) -> list[object]:
    meter = meter_of(context)
    if isinstance(values, str):
        meter.check_size(ELEMENT_SIZE * len(values))
    return meter.keep(list(values))


@pass_context
def _tojson(
    context: Context,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as `transformers` does for its templates: no HTML escapes, Unicode as it is."""
    meter = meter_of(context)
    for added in (indent, *(separators or ())):
        _check_added("tojson", added)
    meter.spend(meter.size(value) // ELEMENT_SIZE)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    pieces: list[str] = []
    size = 0
    for piece in encoder.iterencode(value):
        size += len(piece)
        meter.check_size(size)
        pieces.append(piece)
    return meter.keep("".join(pieces))


def _round(value: float, precision: int = 0, method: str = "common") -> object:
    if abs(precision) > MAX_DIGITS:
        raise OverLimitError(f"digits of round ({MAX_DIGITS})")
    return JINJA_FILTERS["round"](value, precision, method)


def _sum(environment: object, values: Any, attribute: Any = None, start: float = 0) -> object:
    if not isinstance(start, int | float):
        raise NotDataError("sum takes numbers")  # lists would be copied once for each
    return JINJA_FILTERS["sum"](environment, values, attribute, start)


def _check_added(name: str, added: object) -> None:
    length = len(added) if isinstance(added, str) else added
    if isinstance(length, int) and length > MAX_ADDED:
        raise OverLimitError(f"width of {name} ({MAX_ADDED} characters)")


def _jinja(
    wrapper: Callable[[Function, Callable[[Context], tuple[object, ...]]], Function],
    leading: Callable[[Context], tuple[object, ...]],
    names: str,
    table: Mapping[str, Any] = JINJA_FILTERS,
) -> dict[str, Function]:
    return {name: wrapper(table[name], leading) for name in names.split()}


FILTERS: Mapping[str, Function] = {
    **_jinja(_light, _nothing, "count d default length"),
    **_jinja(_light, _environment, "first last"),
    **_jinja(_lazy, _nothing, "items reverse"),
    **_jinja(_lazy, _environment, "unique"),
    **_jinja(_lazy, _context, "map reject rejectattr select selectattr"),
    **_jinja(_metered, _nothing, "abs dictsort float int"),
    **_jinja(_metered, _environment, "groupby max min sort"),
    "capitalize": _of_text(lambda _, text: text.capitalize()),
    "e": _of_text(lambda _, text: str(escape(text))),
    "escape": _of_text(lambda _, text: str(escape(text))),
    "indent": _of_text(_indent),
    "join": _join,
    "list": _list,
    "lower": _of_text(lambda _, text: text.lower()),
    "replace": _of_text(_replace),
    "round": _metered(_round, _nothing),
    "safe": _of_text(lambda _, text: text),
    "string": _of_text(lambda _, text: text),
    "sum": _metered(_sum, _environment),
    "title": _of_text(_title),
    "tojson": _tojson,
    "trim": _of_text(methods.strip),
    "upper": _of_text(lambda _, text: text.upper()),
}

TESTS: Mapping[str, Function] = {
    **_jinja(
        _light,
        _nothing,
        "boolean callable defined divisibleby even false float integer iterable mapping none number"
        " odd sameas sequence string true undefined",
        JINJA_TESTS,
    ),
    **_jinja(
        _metered,
        _nothing,
        "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lower lt ne upper",
        JINJA_TESTS,
    ),
}
