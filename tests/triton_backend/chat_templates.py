"""Chat templates in the styles of known model families, in our own words, and conversations for them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from triton_backend.chat_template import ChatTemplate
from triton_backend.segments import Segment, SegmentKind

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

HEADERS = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + strftime_now("%d %b %Y") + "\n\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {{- (message['content'] | trim) + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content | tojson }}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

INSTRUCTIONS = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate: user, assistant, user, ...') }}
{%- endif %}
{%- if message['role'] == 'user' %}{{ ' [INST] ' ~ message['content'] ~ ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' ' ~ message['content'] | trim ~ eos_token }}
{%- else %}{{ raise_exception('Only user and assistant take part, not ' + message['role']) }}
{%- endif %}{% endfor %}"""

TURNS = """{{ bos_token }}
{%- for message in messages -%}
    {%- if message['role'] == 'assistant' -%}{%- set role = 'model' -%}
    {%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    <start_of_turn>{{ role }}
{% if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for part in message['content'] -%}
            {%- if part['type'] == 'text' -%}{{ part['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}<end_of_turn>
{% endfor -%}
{%- if add_generation_prompt -%}<start_of_turn>model
{% endif -%}"""

TOOLS = """{%- macro signature(function) -%}
    {{ function.name }}({% for name, what in function.parameters.properties | dictsort %}
    {%- if not loop.first %}, {% endif %}{{ name }}: {{ what.type | default('any') }}
    {%- endfor %})
{%- endmacro %}
{%- set ns = namespace(last=-1, seen=[]) %}
{%- if tools %}
    {{- '<|im_start|>system\nTools:\n' }}
    {%- for tool in tools %}
        {{- signature(tool.function) ~ ' ' ~ (tool | tojson(indent=2)) ~ '\n' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- generation %}{{- '<|im_start|>assistant\n' + content }}{% endgeneration %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>' ~ call.function.arguments | tojson ~ '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {%- set ns.seen = ns.seen + [message.role] %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ content.strip() ~ '<|im_end|>\n' }}
    {%- endif %}
    {%- if loop.index0 == ns.last and enable_thinking is defined and enable_thinking is false %}
        {{- '<|no_think|>' }}
    {%- endif %}
{%- endfor %}
{{- ns.seen | unique | join(',') | upper }}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

STYLES = {
    "chatml": CHATML,
    "headers": HEADERS,
    "instructions": INSTRUCTIONS,
    "turns": TURNS,
    "tools": TOOLS,
}
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONTROLS = (
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|no_think|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
)


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


ONE_TURN = [message("user", "  What is 2 + 2?\n")]
THREE_TURNS = [
    message("user", 'Hi <b>there</b> & "you"'),
    message("assistant", " <think>hm</think>\n\nHello. "),
    message("user", "日本語 👩‍👩‍👧‍👦 \\n {{ 1 }} {% if %}"),
    message("assistant", ""),
    message("user", "x" * 200),
]
WITH_SYSTEM = [message("system", " Be brief.\n"), *THREE_TURNS]
TOOL_CALL = {"function": {"name": "add", "arguments": {"b": [1, 2.5, None], "a": "é<>&'\""}}}
WITH_TOOLS = [
    message("user", "add"),
    message("assistant", "", tool_calls=[TOOL_CALL]),
    message("tool", "3.5", name="add"),
    message("user", "thanks"),
]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds <numbers> & such",
        "parameters": {"type": "object", "properties": {"b": {"type": "number"}, "a": {}}},
    },
}
NOW = datetime(2026, 7, 9, 10, 11)


def compiled(source: str, **given: Any) -> ChatTemplate:
    options = {"special_tokens": SPECIAL_TOKENS, "control_strings": CONTROLS, "clock": lambda: NOW}
    return ChatTemplate(source, **{**options, **given})


def text_of(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def controls_of(segments: Sequence[Segment]) -> list[str]:
    return [segment.text for segment in segments if segment.kind is SegmentKind.CONTROL]
