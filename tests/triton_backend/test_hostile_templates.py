"""Templates that want out, or want everything: each ends soon, in an error that says which limit it met."""

import time
from typing import Any

import pytest

from builder.errors import CheckpointError, RequestError
from tests.triton_backend.chat_templates import compiled, message, text_of
from triton_backend.chat_template import check_template
from triton_backend.templates.meter import TemplateLimits

CHAT = [message("user", "x")]
# A sixteenth of the default work: what ends within 0.1 s here ends in seconds there.
LIMITS = TemplateLimits(max_size=2**20, max_work=2**17)
MAX_SECONDS = 20.0
"""Ten times and more what the slowest takes on a busy machine."""


def render(source: str, messages: list[dict[str, Any]] = CHAT) -> str:
    return text_of(compiled(source, limits=LIMITS).render(messages))


OUT_OF_REACH_WHEN_COMPILED = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ messages.__class__.__mro__ }}",
    "{{ render.__globals__ }}",
    "{{ self }}",
    "{{ self._TemplateReference__context }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ cycler('a') }}",
    "{{ joiner() }}",
    "{{ lipsum(n=1000000) }}",
    "{{ messages | attr('__class__') }}",
    "{{ messages | map('attr', '__class__') | list }}",
    "{{ messages | map(attribute='__class__') | list }}",
    "{{ messages | map(attribute='content.__class__') | list }}",
    "{{ messages | selectattr('__class__') | list }}",
    "{{ messages | groupby('__class__') }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '{0[x]}'.format(messages) }}",
    "{{ '{0'.format(messages) }}",
    "{{ namespace(a=1)._Namespace__attrs }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block a %}{% endblock %}",
    "{% autoescape true %}{% endautoescape %}",
    "{{ 'x' | xmlattr }}",
    "{{ 'x' | pprint }}",
    "{{ 'x' is escaped }}",
]


@pytest.mark.parametrize("source", OUT_OF_REACH_WHEN_COMPILED)
def test_what_is_out_of_reach_is_refused_when_compiled(source: str) -> None:
    with pytest.raises(CheckpointError, match="chat template, line 1"):
        check_template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages['__cla' ~ 'ss__']['x'] }}",
        "{{ (messages | first)['__in' ~ 'it__']['__glo' ~ 'bals__'] }}",
        "{{ ''['__cla' ~ 'ss__']() }}",
        "{{ dict['__in' ~ 'it__']() }}",
        "{% set n = namespace(a=1) %}{{ n['_Namespace_' ~ '_attrs'].x }}",
        "{% set f = '{0.__cla' ~ 'ss__}' %}{{ f.format(1) }}",
        "{% for x in messages %}{{ loop['_iter' ~ 'able'].x }}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 9) }}",
        "{{ '{:.1000000000f}'.format(1.0) }}",
    ],
)
def test_what_is_put_together_to_get_out_is_refused_when_rendered(source: str) -> None:
    with pytest.raises(CheckpointError, match=r"reaches for what it may not use \(line 1\)"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ dict.fromkeys([1]) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ 'x'.encode() }}",
        "{{ 'x'.ljust(10 ** 9) }}",
        "{{ 'x'.zfill(10 ** 9) }}",
        "{{ 'x'.center(10 ** 9) }}",
        "{{ '\\t'.expandtabs(10 ** 9) }}",
        "{{ 'x'.translate({}) }}",
        "{{ 'x'.format_map({}) }}",
        "{{ (1).to_bytes(10 ** 9) }}",
        "{{ raise_exception.func_globals.x }}",
        "{{ loop.index }}",
    ],
)
def test_methods_outside_the_tables_do_not_exist(source: str) -> None:
    with pytest.raises(RequestError, match="fails on these messages with UndefinedError"):
        render(source)


def test_names_of_internals_as_text_are_harmless() -> None:
    assert render("{{ '__class__' }}{{ {'__class__': 1}['__cla' ~ 'ss__'] }}") == "__class__1"
    assert render("{{ messages['__cla' ~ 'ss__'] }}") == ""


BIG = "{% set s = 'a' * 600000 %}{% set ns = namespace(s='ab', l=[1], t=(1,), d={}) %}"
ROUNDS = "{% for i in range(100000) %}%s{% endfor %}"
WORK = {
    "nested loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "a loop that takes nothing": ROUNDS.replace(
        "%s", "{% for b in range(100000) if b < 0 %}{% endfor %}"
    ),
    "a recursive loop": "{% for a in range(100000) recursive %}{% if loop.depth < 4 %}"
    "{{ loop(range(100000)) }}{% endif %}{% endfor %}",
    "macros that double": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(90) }}",
    "joining": BIG + ROUNDS.replace("%s", "{% set x = range(10000) | join %}"),
    "lists": ROUNDS.replace("%s", "{% for j in range(100) %}{% set x = [[1]] %}{% endfor %}"),
    "sorting": ROUNDS.replace("%s", "{% set x = range(20000) | sort %}"),
    "unique": ROUNDS.replace("%s", "{% set x = range(0, 2 ** 58, 2 ** 45) | unique | list %}"),
    "mapping": ROUNDS.replace("%s", "{% set x = range(10000) | map('string') | list %}"),
    "loop length": ROUNDS.replace(
        "%s", "{% for y in range(10000) | map('string') %}{{ loop.length }}{% break %}{% endfor %}"
    ),
    "slices": BIG + ROUNDS.replace("%s", "{% set x = s[::-1] %}"),
    "comparing texts": BIG
    + "{% set t = s ~ '' %}"
    + ROUNDS.replace("%s", "{% if s == t %}{% endif %}"),
    "comparing lists": "{% set s = [1] * 20000 %}{% set t = [1] * 20000 %}"
    + ROUNDS.replace("%s", "{% if s == t %}{% endif %}"),
    "testing lists": "{% set s = [1] * 20000 %}{% set t = [1] * 20000 %}"
    + ROUNDS.replace("%s", "{% if s is eq t %}{% endif %}"),
    "changes": BIG
    + "{% set t = s ~ '' %}"
    + ROUNDS.replace("%s", "{% if loop.changed(s if i % 2 else t) %}{% endif %}"),
    "searching texts": BIG + ROUNDS.replace("%s", "{% if 'b' in s %}{% endif %}"),
    "searching backward": BIG + "{{ s.rfind('b' + s[:300000]) }}",
    "parting backward": BIG + "{{ s.rpartition('b' + s[:300000]) }}",
    "splitting backward": BIG + "{{ s.rsplit('b' + s[:300000]) }}",
    "indexing backward": BIG + "{{ s.rindex('b' + s[:300000]) }}",
    "searching lists": "{% set s = [1] * 20000 %}"
    + ROUNDS.replace("%s", "{% if 2 in s %}{% endif %}"),
    "counting": BIG + ROUNDS.replace("%s", "{% set x = s.count('ab') %}"),
    "a method kept": BIG
    + "{% set f = s.replace %}"
    + ROUNDS.replace("%s", "{% set x = f('a', '') %}"),
    "upper": "{% set s = 'ß' * 100000 %}" + ROUNDS.replace("%s", "{% set x = s.upper() %}"),
    "title": "{% set s = 'a ' * 100000 %}" + ROUNDS.replace("%s", "{% set x = s | title %}"),
    "characters": "{% set s = '日' * 20000 %}" + ROUNDS.replace("%s", "{% set x = s | list %}"),
    "splitting": "{% set s = 'a ' * 20000 %}" + ROUNDS.replace("%s", "{% set x = s.split(' ') %}"),
    "stripping": BIG + ROUNDS.replace("%s", "{% set x = s.strip('a') %}"),
    "JSON": "{% set s = [1.5] * 20000 %}" + ROUNDS.replace("%s", "{% set x = s | tojson %}"),
    "mappings": "{% set l = [['a', 1]] * 9000 %}" + ROUNDS.replace("%s", "{% set x = dict(l) %}"),
    "prefixes": "{% set t = ('b',) * 20000 %}"
    + ROUNDS.replace("%s", "{% set x = 'a'.startswith(t) %}"),
    "fields": ROUNDS.replace("%s", "{% set x = ('{0}' * 500).format(1) %}"),
    "straight on": BIG + "{% set t = s ~ '' %}" + "{% if s == t %}{% endif %}" * 500,
    "many texts": "{% set s = '👍' * 200000 %}"
    + "".join(f"{{% set a{i} = s ~ '{i}' %}}" for i in range(300)),
    "lazy values in lazy values": "{% set ns = namespace(g=range(10)) %}"
    + ROUNDS.replace("%s", "{% set ns.g = ns.g | map('string') %}"),
}
SIZE = {
    "repeated text": "{{ 'a' * 10 ** 9 }}",
    "text repeated from the left": "{{ 10 ** 9 * 'a' }}",
    "a repeated list": "{{ ([1] * 10 ** 9) | length }}",
    "a repeated tuple": "{{ ((1,) * 10 ** 9) | length }}",
    "doubling with ~": BIG + ROUNDS.replace("%s", "{% set ns.s = ns.s ~ ns.s %}"),
    "doubling with +": BIG + ROUNDS.replace("%s", "{% set ns.s = ns.s + ns.s %}"),
    "doubling a list": BIG + ROUNDS.replace("%s", "{% set ns.l = ns.l + ns.l %}"),
    "doubling by reference": BIG
    + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "tuples by reference": BIG
    + "{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}",
    "mappings by reference": BIG
    + "{% for i in range(60) %}{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}{{ ns.d | tojson }}",
    "doubling in a block": BIG
    + ROUNDS.replace("%s", "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
    "macros that double their text": "{% macro f(n) %}{% if n %}{{ f(n - 1) * 2 }}{% else %}a{% endif %}"
    "{% endmacro %}{{ f(50) }}",
    "joining with long text": BIG + "{{ range(10000) | join(s) }}",
    "the join method": BIG + "{{ s.join(range(10000)) }}",
    "replacing by long text": BIG + "{{ s.replace('a', s) }}",
    "the replace filter": BIG + "{{ s | replace('', s) }}",
    "indenting": "{{ ('a\\n' * 8000) | indent(200) }}",
    "characters of a text": BIG + "{{ s | list }}",
    "words of a text": "{{ ('a ' * 300000).split() }}",
    "lines of a text": "{{ ('\\n' * 300000).splitlines() }}",
    "many fields": "{{ ('{0}' * 20000).format('a' * 20000) }}",
    "output": BIG + "{{ s }}{{ s }}",
    "output in a loop": BIG + ROUNDS.replace("%s", "{{ s }}"),
    "escaping": "{% set s = '\\x01' * 600000 %}{{ s | tojson }}",
    "power": "{{ 10 ** 10 ** 10 }}",
    "power in brackets": "{{ 10 ** (10 ** 10) }}",
    "squaring": "{% set ns = namespace(x=10) %}"
    + ROUNDS.replace("%s", "{% set ns.x = ns.x * ns.x %}"),
    "integers with one hash": "{{ range(0, (2 ** 61 - 1) * 90000, 2 ** 61 - 1) | unique | list }}",
    "integers in text": "{{ ('9' * 4000) | int }}",
    "integers in other bases": "{{ ('f' * 600000) | int(0, 16) }}",
}
OTHER = {
    "depth": (
        "{% set ns = namespace(l=[]) %}" + ROUNDS.replace("%s", "{% set ns.l = [ns.l] %}"),
        "depth",
    ),
    "wide indents": ("{{ 'a\\nb' | indent(10 ** 9) }}", "width of indent"),
    "wide JSON": ("{{ [1] | tojson(indent=10 ** 9) }}", "width of tojson"),
    "separators": ("{{ [1] | tojson(separators=(',' * 300, ':')) }}", "width of tojson"),
    "digits": ("{{ 1.5 | round(10 ** 9, 'ceil') }}", "digits of round"),
    "stripped characters": (BIG + "{{ s.strip(s) }}", "characters to strip"),
    "stripped by a filter": (BIG + "{{ s | trim(s) }}", "characters to strip"),
    "dates": ("{{ strftime_now('%c' * 1000) }}", "date format"),
    "endless macros": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    "endless loops": (
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "RecursionError",
    ),
    "long ranges": ("{% for i in range(10 ** 9) %}{% endfor %}", "OverflowError"),
    "sums of lists": ("{{ ([[1]] * 100) | sum(start=[]) }}", "NotDataError"),
}


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        *(pytest.param(source, "limit of work", id=name) for name, source in WORK.items()),
        *(pytest.param(source, "limit of size", id=name) for name, source in SIZE.items()),
        *(pytest.param(*pair, id=name) for name, pair in OTHER.items()),
    ],
)
def test_a_template_that_wants_too_much_is_stopped_soon(source: str, limit: str) -> None:
    start = time.thread_time()
    with pytest.raises(RequestError, match=limit):
        render(source)
    assert time.thread_time() - start < MAX_SECONDS


def test_lazy_values_never_pile_up() -> None:
    turn_around = "{% set ns = namespace(g=[1, 2]) %}{% for i in range(9001) %}%s{% endfor %}{{ ns.g | list }}"
    assert render(turn_around.replace("%s", "{% set ns.g = ns.g | reverse %}")) == "[2, 1]"


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000,
        "{{ " + "[" * 150 + "]" * 150 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ " + "not " * 5000 + "1 }}",
        "{{ 1" + " + 1" * 5000 + " }}",
        "{% for x in y %}" * 30 + "{% endfor %}" * 30,
        "{% if x %}" * 150 + "{% endif %}" * 150,
        "{% if %}",
        "{{ " + "9" * 5000 + " }}",
        "{% for x in y %}",
        "{% endfor %}",
        "{% unknown %}",
        "{{ 'a",
        "a" * (2**18 + 1),
    ],
    ids=lambda source: source[:12],
)
def test_a_source_that_cant_be_compiled_is_refused_in_one_line(source: str) -> None:
    start = time.thread_time()
    with pytest.raises(CheckpointError, match="chat template") as caught:
        check_template(source)
    assert time.thread_time() - start < MAX_SECONDS
    assert "\n" not in str(caught.value)


def test_many_messages_are_within_the_limits() -> None:
    source = (
        "{% for message in messages %}{{ message.role ~ message['content'] | trim }}{% endfor %}"
    )
    messages = [message("user", " word " * 20) for _ in range(2000)]
    assert len(render(source, messages)) == 2000 * (4 + 6 * 20 - 2)
