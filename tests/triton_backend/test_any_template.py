"""Templates drawn at random: whatever they say, they render or are refused, soon."""

import contextlib
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from builder.errors import CheckpointError, RequestError
from tests.triton_backend.chat_templates import ONE_TURN, compiled
from triton_backend.templates.meter import TemplateLimits

LIMITS = TemplateLimits(max_size=2**20, max_work=2**17)
MAX_SECONDS = 20.0

BEFORE = "{% set ns = namespace(x=1) %}{% set s = 'ab' %}"
NAMES = ["messages", "ns", "s", "i", "x", "loop", "f", "dict", "namespace", "range"]
ATOMS = st.sampled_from([*NAMES, "1", "3", "'a'", "''", "[]", "{}", "true", "none", "2 ** 30"])
ENDINGS = st.sampled_from(
    [
        ".content",
        "[0]",
        "['role']",
        "[1:]",
        "[::-1]",
        "()",
        "(i)",
        ".items()",
        ".split('a')",
        ".format(x)",
        " | list",
        " | tojson",
        " | join('a' * 99)",
        " | sort",
        " | map('upper')",
        " | length",
        " | first",
        " * 999",
        " ~ s",
        " + s",
        " + x",
        " ** 9",
        " % 3",
        " == x",
        " in s",
        " is string",
        " | replace('a', s)",
        " | indent(9)",
        " | default(s)",
        " | unique",
        " | reverse",
        " | int",
        " | string",
        " | batch(2)",
    ]
)
EXPRESSIONS = st.tuples(ATOMS, st.lists(ENDINGS, max_size=5)).map(lambda p: p[0] + "".join(p[1]))
STATEMENTS = st.recursive(
    EXPRESSIONS.map("{{{{ {} }}}}".format)
    | EXPRESSIONS.map("{{% set x = {} %}}".format)
    | EXPRESSIONS.map("{{% set ns.x = {} %}}".format),
    lambda inner: st.tuples(EXPRESSIONS, st.lists(inner, max_size=3).map("".join)).flatmap(
        lambda p: st.sampled_from(
            [
                f"{{% for i in {p[0]} %}}{p[1]}{{% endfor %}}",
                f"{{% for i in {p[0]} recursive %}}{p[1]}{{{{ loop(i) }}}}{{% endfor %}}",
                f"{{% if {p[0]} %}}{p[1]}{{% endif %}}",
                f"{{% set s %}}{p[1]}{{% endset %}}",
                f"{{% macro f(x) %}}{p[1]}{{% endmacro %}}{{{{ f({p[0]}) }}}}",
            ]
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.lists(STATEMENTS, max_size=4).map("".join))
def test_any_template_renders_or_is_refused(source: str) -> None:
    start = time.thread_time()
    with contextlib.suppress(CheckpointError, RequestError):
        compiled(BEFORE + source, limits=LIMITS).render(ONE_TURN)
    assert time.thread_time() - start < MAX_SECONDS
