"""A model's chat template: messages in, typed segments out.

Control strings count only where the template itself writes them. In all that the client sent they are
broken before rendering, by a noncharacter that is taken out of the rendered text afterwards, so that they
stay text while the template trims, compares and joins as it likes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError

from builder.errors import CheckpointError, RequestError, unknown_name
from triton_backend.chat_messages import (
    ContentForm,
    broken,
    checked_data,
    checked_messages,
    escaped,
    strings_of,
    unused_sentinel,
)
from triton_backend.segments import ControlStrings, Segment
from triton_backend.templates.environment import RefusedError, TemplateEnvironment
from triton_backend.templates.meter import OverLimitError, TemplateLimits
from triton_backend.templates.program import compile_template

PROBE = "probe0"
LIMITS = TemplateLimits()


class ChatTemplate:
    """Renders chats with one template; threads may share it."""

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str],
        control_strings: Iterable[str],
        clock: Callable[[], datetime],
        limits: TemplateLimits = LIMITS,
    ) -> None:
        """Compile the template.

        `special_tokens` are the names that templates use, such as bos_token, with their spelling;
        `control_strings` are all special tokens of the vocabulary; `clock` gives the local time.

        Raises:
            CheckpointError: the template does not compile, or reaches for what it may not use.
        """
        self._program = compile_template(source, limits)
        self._source = source
        self._limits = limits
        self._clock = clock
        self._special_tokens = dict(special_tokens)
        # A string of one character can't be broken, so it is never control.
        self._controls = ControlStrings(string for string in control_strings if len(string) > 1)
        self._form = self._probed_form()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[Segment]:
        """Render a chat. `variables` are further ones that the template reads, such as enable_thinking.

        Raises:
            RequestError: the chat has a wrong shape, or the template refuses it or fails on it.
            CheckpointError: the template reaches for what it may not use.
        """
        given = {
            "messages": checked_messages(messages, self._form),
            "tools": self._checked_tools(tools),
            **self._checked_variables(variables),
        }
        sentinel = unused_sentinel([*strings_of(given), self._source])
        text = self._text(
            self._limits,
            {
                "documents": None,
                **self._special_tokens,
                **broken(given, self._controls, sentinel),
                "add_generation_prompt": add_generation_prompt,
            },
        )
        return self._segments(text, sentinel)

    def _checked_tools(self, tools: Sequence[Mapping[str, Any]] | None) -> Any:
        if not tools:
            return tools
        if "tools" not in self._program.variables:
            raise RequestError("this model's chat template has no place for tools; send none.")
        for place, tool in enumerate(tools):
            if not isinstance(tool, Mapping):
                raise RequestError(f"tools[{place}] must be an object.")
        return checked_data("tools", list(tools))

    def _checked_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        own = {"messages", "tools", "add_generation_prompt", *self._special_tokens}
        known = self._program.variables - own
        for name in variables:
            if name not in known:
                raise RequestError(unknown_name("chat template variable", name, known))
        return {name: checked_data(name, value) for name, value in variables.items()}

    def _segments(self, text: str, sentinel: str) -> list[Segment]:
        """Cut a rendered text at its control strings and take the sentinel out of the rest."""
        segments = []
        for segment in self._controls.split(text):
            cleaned = segment.text.replace(sentinel, "").replace(escaped(sentinel), "")
            if cleaned:
                segments.append(Segment(segment.kind, cleaned))
        return segments

    def _text(self, limits: TemplateLimits, variables: Mapping[str, Any]) -> str:
        environment = TemplateEnvironment(limits, self._clock)
        template = Template.from_code(environment, self._program.code, environment.globals)
        # Causes are cut off below: what Jinja and Python say may quote the messages.
        try:
            return template.render(variables)
        except RefusedError as error:
            raise RequestError(self._refusal(error)) from None
        except OverLimitError as error:
            raise RequestError(
                f"the chat template went over its limit of {error} on these messages; send less."
            ) from None
        except SecurityError as error:
            raise CheckpointError(
                f"the chat template reaches for what it may not use{_line(error.__traceback__)}."
            ) from None
        except Exception as error:  # noqa: BLE001 - templates fail in any way that Python can
            raise RequestError(
                f"the chat template fails on these messages with {type(error).__name__}"
                f"{_line(error.__traceback__)}; check their roles, order and fields."
            ) from None

    def _refusal(self, error: RefusedError) -> str:
        """Say why the template refused, in its own words only if they stand in its source.

        A message that was put together may quote the chat.
        """
        words = str(error.args[0])
        reason = f": {' '.join(words.split())}" if words in self._program.refusals else ""
        return f"the chat template refuses these messages{_line(error.__traceback__)}{reason}"

    def _probed_form(self) -> ContentForm:
        """Find out by rendering which form of content the template shows as it was meant."""
        takes_text = PROBE in self._probed(PROBE)
        parts = self._probed([{"type": "text", "text": PROBE}])
        # A template that knows no parts fails, or writes the list itself with its keys.
        takes_parts = PROBE in parts and "'text'" not in parts and '"text"' not in parts
        if takes_text == takes_parts:
            return ContentForm.ANY if takes_text else ContentForm.TEXT
        return ContentForm.TEXT if takes_text else ContentForm.PARTS

    def _probed(self, content: object) -> str:
        messages = [{"role": "user", "content": content}]
        limits = replace(self._limits, max_work=self._limits.max_work // 32)
        own = {"tools": None, "documents": None, "add_generation_prompt": True}
        try:
            return self._text(limits, {**own, **self._special_tokens, "messages": messages})
        except (RequestError, CheckpointError):
            return ""


def check_template(source: str) -> None:
    """Refuse a chat template that could not be served.

    Raises:
        CheckpointError: it does not compile, or reaches for what it may not use.
    """
    compile_template(source, LIMITS)


def _line(traceback: TracebackType | None) -> str:
    """Say in which line of the template an error arose."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return "" if line is None else f" (line {line})"
