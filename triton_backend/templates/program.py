"""A template's source made into a program whose every loop round, comparison and new value is paid for.

What would reach outside the template (other files, Python's internals, filters that do not exist here) is
refused here, ahead of time; what only a rendering can show is refused by `environment.py`.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import CodeType
from typing import Any

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.visitor import NodeTransformer

from builder.errors import CheckpointError, unknown_name
from triton_backend.templates.environment import (
    COMPARED,
    CONCATENATED,
    MEASURED,
    SEARCHED,
    TICK,
    TemplateEnvironment,
)
from triton_backend.templates.filters import FILTERS, TESTS, Function
from triton_backend.templates.meter import TemplateLimits

REFUSED_STATEMENTS: dict[type[nodes.Node], str] = {
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.FromImport: "from ... import",
    nodes.Import: "import",
    nodes.Include: "include",
    nodes.ScopedEvalContextModifier: "autoescape",
}
REFUSED_NAMES = frozenset({"cycler", "joiner", "lipsum", "self", "super"})
INTERNAL_PATH = re.compile(r"(^|\.)__")


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled template."""

    code: CodeType
    variables: frozenset[str]
    """Names that the template may read before it has set them."""
    refusals: frozenset[str]
    """What it says in `raise_exception`, where that is spelled out in its source."""


def compile_template(source: str, limits: TemplateLimits) -> Program:
    """Compile a chat template.

    Raises:
        CheckpointError: it is too long, is no valid template, or reaches for what it may not use.
    """
    if len(source) > limits.max_source_characters:
        raise CheckpointError(
            f"the chat template has {len(source)} characters; "
            f"at most {limits.max_source_characters} are allowed."
        )
    environment = TemplateEnvironment(limits, clock=datetime.now)
    try:
        tree = environment.parse(source)
        _check(tree)
        variables = meta.find_undeclared_variables(tree) - set(environment.globals)
        refusals = frozenset(_refusals(tree))
        _Metering().visit(tree)
        code = environment.compile(tree)
    except TemplateSyntaxError as error:
        message = " ".join(str(error.message).split())
        raise CheckpointError(f"the chat template, line {error.lineno}: {message}") from error
    except (RecursionError, SyntaxError, MemoryError) as error:
        # Python itself refuses too many brackets or indents in the code of a template.
        raise CheckpointError("the chat template is nested too deeply to compile.") from error
    except (ValueError, OverflowError) as error:
        raise CheckpointError(
            "the chat template has a text or number that Python can't hold."
        ) from error
    return Program(code, frozenset(variables), refusals)


def _check(tree: nodes.Template) -> None:
    for kind, word in REFUSED_STATEMENTS.items():
        for statement in tree.find_all(kind):
            raise _refused(statement, f"{word!r} is not allowed in a chat template")
    for name in tree.find_all(nodes.Name):
        if name.name in REFUSED_NAMES:
            raise _refused(name, f"{name.name!r} is not allowed in a chat template")
    for item in tree.find_all(nodes.Getitem):
        _check_item(item)
    for access in tree.find_all(nodes.Getattr):
        _check_attribute(access)
    for used in tree.find_all(nodes.Filter):
        _check_known("filter", used, FILTERS)
    for asked in tree.find_all(nodes.Test):
        _check_known("test", asked, TESTS)


def _check_item(access: nodes.Getitem) -> None:
    key = access.arg.value if isinstance(access.arg, nodes.Const) else None
    if isinstance(key, str) and key.startswith("__"):
        raise _refused(access, f"{key!r} is out of reach")


def _check_attribute(access: nodes.Getattr) -> None:
    if access.attr.startswith("_"):
        raise _refused(access, f"attribute {access.attr!r} is out of reach")
    if access.attr.startswith("format") and isinstance(access.node, nodes.Const):
        _check_format(access, str(access.node.value))


def _check_format(access: nodes.Getattr, text: str) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError as error:
        raise _refused(access, f"format text is broken ({error})") from None
    if any("." in field or "[" in field for field in fields):
        raise _refused(access, "a format field may name an argument, not a part of one")


def _check_known(kind: str, call: nodes.Filter | nodes.Test, known: Mapping[str, Function]) -> None:
    if call.name not in known:
        raise _refused(call, unknown_name(f"{kind} of chat templates", call.name, known))
    values = [*call.args, *(pair.value for pair in call.kwargs)]
    for value in values:
        if isinstance(value, nodes.Const) and INTERNAL_PATH.search(str(value.value)):
            raise _refused(call, f"{value.value!r} is out of reach")


def _refused(node: nodes.Node, reason: str) -> CheckpointError:
    return CheckpointError(f"the chat template, line {node.lineno}: {reason.rstrip('.')}.")


def _refusals(tree: nodes.Template) -> Iterable[str]:
    for call in tree.find_all(nodes.Call):
        named = isinstance(call.node, nodes.Name) and call.node.name == "raise_exception"
        if named and call.args and isinstance(call.args[0], nodes.Const):
            yield str(call.args[0].value)


class _Metering(NodeTransformer):
    """Puts a filter of `environment.py` at each place that costs and that Jinja does not let it see."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node, *args, **kwargs)
        change = CHANGES.get(type(node))
        return node if change is None else change(node)


def _count_rounds(node: nodes.For) -> nodes.For:
    node.body.insert(0, nodes.ExprStmt(_tick(), lineno=node.lineno))
    if node.test is not None:
        node.test = nodes.And(_tick(), node.test)
    return node


def _weigh(node: nodes.Expr) -> nodes.Expr:
    is_target = isinstance(node, nodes.Tuple) and node.ctx == "store"
    return node if is_target else _filtered(MEASURED, node)


def _weigh_slice(node: nodes.Getitem) -> nodes.Expr:
    # Jinja's code takes slices itself, past `TemplateEnvironment.getitem`.
    return _filtered(MEASURED, node) if isinstance(node.arg, nodes.Slice) else node


def _join_by_meter(node: nodes.Concat) -> nodes.Expr:
    return _filtered(CONCATENATED, nodes.List(node.nodes, lineno=node.lineno))


def _pay_for_comparing(node: nodes.Compare) -> nodes.Compare:
    node.expr = _filtered(COMPARED, node.expr)
    for operand in node.ops:
        name = SEARCHED if operand.op in ("in", "notin") else COMPARED
        operand.expr = _filtered(name, operand.expr)
    return node


CHANGES: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
    nodes.For: _count_rounds,
    nodes.Getitem: _weigh_slice,
    nodes.List: _weigh,
    nodes.Dict: _weigh,
    nodes.Tuple: _weigh,
    nodes.Concat: _join_by_meter,
    nodes.Compare: _pay_for_comparing,
}


def _tick() -> nodes.Filter:
    return _filtered(TICK, nodes.Const(True))


def _filtered(name: str, node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
