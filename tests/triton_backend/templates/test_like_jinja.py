"""What templates may use means what it means in Jinja, as transformers sets it up."""

import json
from datetime import datetime
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from triton_backend.templates.environment import TemplateEnvironment
from triton_backend.templates.filters import FILTERS, TESTS
from triton_backend.templates.meter import TemplateLimits
from triton_backend.templates.methods import ATTRIBUTES, TEXT_METHODS
from triton_backend.templates.program import compile_template

LIMITS = TemplateLimits()
DATA: dict[str, Any] = {
    "text": "  One two,\tthree three  ",
    "lines": "a\nb\n\n c\r\nd",
    "people": [
        {"name": "Bo", "age": 30, "tags": ["x", "y"]},
        {"name": "al", "age": 25, "tags": []},
        {"name": "Cy", "age": 30, "tags": ["x"]},
    ],
    "numbers": [3, 1.5, 2, 1.5, -4],
    "mapping": {"b": 1, "a": {"c": [None, True, "é<'>"]}},
    "items": {"items": 1},
    "empty": "",
    "nothing": None,
}

EXPRESSIONS = {
    "abs": "numbers | map('abs') | list",
    "capitalize": "text | trim | capitalize",
    "count": "people | count",
    "d": "missing | d('x') ~ (empty | d('y', true))",
    "default": "missing | default('x') ~ (nothing | default('y')) ~ (nothing | default('z', boolean=true))",
    "dictsort": "mapping | dictsort | map('first') | join",
    "e": "'<&>' | e",
    "escape": "'<&>' | escape",
    "first": "(people | first).name ~ (people | map(attribute='name') | first)",
    "float": "'1.5' | float + ('x' | float(2.5))",
    "groupby": "people | groupby('age') | map('first') | list",
    "indent": "(lines | indent) ~ (lines | indent(2, true)) ~ (lines | indent('>>', blank=true))",
    "int": "('7' | int) + ('x' | int(3)) + ('ff' | int(0, 16))",
    "items": "mapping | items | map('last') | list",
    "join": "(numbers | join) ~ (numbers | join('; ')) ~ (people | join('-', attribute='name'))",
    "last": "numbers | last",
    "length": "text | length",
    "list": "'añ' | list",
    "lower": "text | lower",
    "map": "people | map(attribute='tags') | map('join', '+') | list",
    "max": "(numbers | max) ~ (people | max(attribute='age')).name",
    "min": "(numbers | min) ~ (people | min(attribute='name')).name",
    "reject": "numbers | reject('lessthan', 2) | list",
    "rejectattr": "people | rejectattr('age', 'equalto', 30) | map(attribute='name') | list",
    "replace": "(text | replace('three', '3')) ~ (text | replace('three', 3, 1)) ~ ('aaa' | replace('a', 'b', count=2))",
    "reverse": "(text | reverse) ~ (numbers | reverse | list)",
    "round": "(2.345 | round(2)) ~ (2.5 | round) ~ (2.1 | round(0, 'ceil'))",
    "safe": "('<b>' | safe) ~ '<'",
    "select": "numbers | select('odd') | list if false else numbers | select('greaterthan', 2) | list",
    "selectattr": "people | selectattr('tags') | map(attribute='name') | list",
    "sort": "(numbers | sort) ~ (people | sort(attribute='name', reverse=true) | map(attribute='name') | list)",
    "string": "(mapping | string) ~ (1.0 | string)",
    "sum": "(numbers | sum) ~ (people | sum(attribute='age', start=1))",
    "title": "text | title",
    "tojson": "(mapping | tojson) ~ (mapping | tojson(indent=2)) ~ (mapping | tojson(ensure_ascii=true, sort_keys=true))",
    "trim": "(text | trim) ~ ('xxaxx' | trim('x'))",
    "unique": "(numbers | unique | list) ~ (people | unique(attribute='age') | map(attribute='name') | list)",
    "upper": "text | upper",
}
TESTED = {
    "divisibleby": "6 is divisibleby 3",
    "in": "'x' is in ['x']",
    "sameas": "nothing is sameas none",
    "ne": "1 is ne 2",
    "lower": "'abc' is lower",
    "upper": "'abc' is upper",
    **{name: f"3 is {name} 2" for name in ("ge", "gt", "greaterthan", "le", "lt", "lessthan")},
    **{name: f"'a' is {name} 'a'" for name in ("eq", "equalto")},
    **{
        name: f"2 is {name} or text is {name} or mapping is {name}"
        for name in ("number", "mapping")
    },
}
CALLS = [
    "text.strip().split()",
    "text.split(' ', 1)",
    "text.rsplit('t', 1)",
    "lines.splitlines()",
    "lines.splitlines(true)",
    "text.strip(' O')",
    "text.lstrip() ~ '|' ~ text.rstrip()",
    "text.replace('t', 'T')",
    "text.replace('t', 'T', 1)",
    "text.startswith('  O') and text.endswith(('x', '  '))",
    "text.find('two') ~ text.rfind('three') ~ text.index('two') ~ text.rindex('three')",
    "text.count('three') ~ text.upper() ~ text.lower() ~ text.title() ~ text.capitalize()",
    "text.partition('two') ~ text.rpartition('two')",
    "text.removeprefix('  ') ~ text.removesuffix('  ')",
    "', '.join(people | map(attribute='name'))",
    "'{} and {!r:>4} and {name:03d} {{}}'.format('a', 'b', name=7)",
    "'{1}{0}{a}{}'.format(1, 2.5, a='x') if false else '{} {}'.format([1, 'x'], none)",
    "'12'.isdigit() ~ 'ab'.isalpha() ~ 'ab'.isupper() ~ ' '.isspace()",
    "mapping.get('b') ~ mapping.get('z', 'none') ~ mapping['a']['c'][2] ~ mapping.a.c[-1]",
    "mapping.items() | list | length ~ mapping.keys() | list ~ mapping.values() | list | length",
    "items.items is callable ~ items['items']",
    "numbers.index(2) ~ numbers.count(1.5) ~ (1, 2).index(2)",
    "numbers[1:] ~ numbers[::-1] ~ text[2:5] ~ text[-3] ~ numbers[9] ~ (1, 2)[:1]",
    "missing ~ mapping.missing ~ mapping['missing'] ~ nothing",
    "(missing.x is defined) if false else (missing is not defined)",
    "people[0]['name'] == 'Bo' and 'age' in people[0] and 'x' not in people[0].tags",
    "[1, 'a', none, 1.0, true] ~ {'a': (1,)} ~ ()",
    "[1 + 2 * 3 - 4 / 2 // 1 % 5, 2 ** 10, -3, 7 // 2, 7 % 3, 2 ** 0.5, 2 ** -1]",
    "'ab' * 3 ~ 2 * 'c' ~ [1] * 2 ~ [1] + [2] ~ (1,) + (2,) ~ 'a' + 'b'",
    "[1 < 2 < 3, 1 if text else 2, empty or 'x', not nothing, 1 in [1], 2 not in [1]]",
    "range(3) | list ~ range(1, 9, 3) | list ~ range(3)[1]",
    "dict(a=1, b=dict([('c', 2)]))",
    "namespace(a=1).a ~ namespace({'b': 2})['b'] ~ namespace().c",
]
STATEMENTS = [
    (
        "{% for p in people if p.age > 26 %}{{ loop.index }}/{{ loop.length }} {{ p.name }}{{ ',' if not loop.last }}"
        "{% else %}none{% endfor %}"
    ),
    (
        "{% for p in people %}{{ loop.index0 }}{{ loop.first }}{{ loop.revindex }}{{ loop.cycle('a', 'b') }}"
        "{{ loop.changed(p.age) }}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %}"
    ),
    "{% for n in [[1, [2]], [3]] recursive %}{{ loop.depth }}{{ loop(n) if n is not number else n }}{% endfor %}",
    "{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %}",
    (
        "{% for c in text | trim %}{% if c == 't' %}{% continue %}{% endif %}{% if c == ',' %}{% break %}{% endif %}"
        "{{ c }}{% endfor %}"
    ),
    "{% for n in people | map(attribute='name') %}{{ n }}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for n in numbers %}{% set ns.n = ns.n + n %}{% endfor %}{{ ns.n }}",
    "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) ~ f(1, 2, 3, c=4) }}",
    "{% macro f() %}[{{ caller('x') }}]{% endmacro %}{% call(y) f() %}{{ y }}!{% endcall %}",
    "{% set x %}a{{ text }}b{% endset %}{{ x | length }}{{ x }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}{% with c = 3 %}{{ c }}{% endwith %}{{ c }}",
    "{% filter upper %}abc{{ text }}{% endfilter %}",
    "  {% if text is string and numbers is iterable and numbers is sequence %}  \n  yes\n  {% endif %}\n\n x\n",
    "{#- a comment -#}  {{- 'x' -}}  \n  {%- raw %}{{ raw }}{% endraw %}\n",
    "{% for x in [] %}{% else %}empty{% endfor %}",
]


def ours(source: str) -> str:
    environment = TemplateEnvironment(LIMITS, clock=datetime.now)
    code = compile_template(source, LIMITS).code
    template = environment.template_class.from_code(environment, code, environment.globals)
    return template.render(DATA)


def theirs(source: str) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    return environment.from_string(source).render(DATA)


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_that_of_jinja(name: str) -> None:
    source = "{{ " + EXPRESSIONS[name] + " }}"
    assert name in source
    assert ours(source) == theirs(source) != ""


@pytest.mark.parametrize("name", TESTS)
def test_each_test_is_that_of_jinja(name: str) -> None:
    asked = TESTED.get(name)
    if asked is None and not name.isalpha():
        asked = f"[1, 2, 3] | select('{name}', 2) | list"
    for value in (asked,) if asked else DATA:
        source = "{{ " + (asked or f"{value} is {name}") + " }}"
        try:
            expected = theirs(source)
        except (TemplateError, TypeError) as error:
            with pytest.raises(type(error)):
                ours(source)
        else:
            assert ours(source) == expected


@pytest.mark.parametrize("expression", CALLS)
def test_methods_and_operators_are_those_of_jinja(expression: str) -> None:
    source = "{{ " + expression + " }}"
    assert ours(source) == theirs(source)


@pytest.mark.parametrize("source", STATEMENTS)
def test_statements_are_those_of_jinja(source: str) -> None:
    assert ours(source) == theirs(source)


def test_a_generation_block_is_its_body() -> None:
    source = (
        "{% set a = 1 %}{% generation %}{{ a }}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}"
    )
    assert ours(source) == "121"


@pytest.mark.parametrize("kind", [str, dict, list, tuple])
def test_a_method_of_the_tables_is_one_of_python(kind: type) -> None:
    methods = ATTRIBUTES[kind] | (TEXT_METHODS.keys() if kind is str else set())
    assert all(callable(getattr(kind, name)) for name in methods)
    assert not any(name.startswith("_") for name in methods)
