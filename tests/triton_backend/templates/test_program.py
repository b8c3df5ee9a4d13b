"""Compiling templates: what they read, what they say, and errors that name a line."""

import pytest

from builder.errors import CheckpointError
from tests.triton_backend.chat_templates import INSTRUCTIONS, TOOLS
from triton_backend.templates.meter import TemplateLimits
from triton_backend.templates.program import compile_template

LIMITS = TemplateLimits()


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("plain", set()),
        ("{% if x %}{% set y = 1 %}{% endif %}{{ y }}", {"x", "y"}),
        (TOOLS, {"messages", "tools", "enable_thinking", "add_generation_prompt"}),
        ("{% set x = 1 %}{{ x }}{{ y }}{% for z in w %}{{ z }}{% endfor %}", {"y", "w"}),
        ("{{ range(3) ~ namespace() ~ raise_exception() ~ strftime_now() ~ dict() }}", set()),
    ],
)
def test_the_variables_of_a_template_are_those_it_may_read_without_setting_them(
    source: str, variables: set[str]
) -> None:
    assert compile_template(source, LIMITS).variables == variables


def test_only_refusals_that_are_spelled_out_are_known() -> None:
    assert compile_template(INSTRUCTIONS, LIMITS).refusals == {
        "Roles must alternate: user, assistant, user, ..."
    }
    assert compile_template("{{ raise_exception() }}{{ f('x') }}", LIMITS).refusals == set()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if x %}\n{{ y | nonsense }}{% endif %}", r"line 2: unknown filter .* 'nonsense'"),
        ("\n\n{{ y is nonsense }}", r"line 3: unknown test .* 'nonsense'"),
        ("{{ x | uper }}", r"'uper'\. Did you mean upper"),
        ("\n{% nonsense %}", "line 2: Encountered unknown tag 'nonsense'"),
        ("{{ x ", "line 1: unexpected end of template"),
        ("{% for x in y %}", "line 1: Unexpected end of template"),
        ("{{ x.__class__ }}", "line 1: attribute '__class__' is out of reach"),
        ("\n{{ x['__class__'] }}", "line 2: '__class__' is out of reach"),
        ("{{ '{a.b}'.format(a=1) }}", "may name an argument, not a part of one"),
        ("{{ '{'.format(a=1) }}", "format text is broken"),
        ("{{ " + "9" * 5000 + " }}", "a text or number that Python can't hold"),
        ("{{ " + "(" * 999 + " }}", "nested too deeply"),
    ],
)
def test_an_error_names_the_line_and_the_reason(source: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"the chat template.*{message}"):
        compile_template(source, LIMITS)


def test_a_template_may_be_as_long_as_the_limit() -> None:
    limits = TemplateLimits(max_source_characters=10)
    compile_template("x" * 10, limits)
    with pytest.raises(CheckpointError, match="has 11 characters; at most 10 are allowed"):
        compile_template("x" * 11, limits)


def test_dunder_words_in_plain_text_are_no_internals() -> None:
    compile_template("__class__ {{ '__media__' }}{{ x['_y'] }}{% for _ in x %}{% endfor %}", LIMITS)
