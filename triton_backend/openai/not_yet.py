"""Fields that are known and not carried out: they may ask for nothing, and are refused by name otherwise."""

from collections.abc import Collection
from typing import Any

from builder.errors import unknown_name
from triton_backend.field_checks import is_same
from triton_backend.openai.errors import ApiError, shown

NOT_YET: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "max_completion_tokens": (),
    "messages": (),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "prompt": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    # It keeps the answer for later calls, which no reuse of KV has to do with.
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
"""With the values that ask for nothing; null always does."""
CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ELSEWHERE = {
    "chat_template_kwargs": CHATS,
    "echo": COMPLETIONS,
    "max_completion_tokens": CHATS,
    "messages": CHATS,
    "prompt": COMPLETIONS,
    "top_logprobs": CHATS,
}
"""Those that one endpoint carries out, and which."""


def without_idle(data: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Give the fields in `known`; all others must be among those that may ask for nothing.

    Raises:
        ApiError: a field is unknown, or asks for something that is not carried out.
    """
    kept = {}
    for name, value in data.items():
        if name in known:
            kept[name] = value
        elif name not in NOT_YET:
            text = unknown_name("field", shown(name), known)
            raise ApiError(400, text, param=shown(name), code="unknown_parameter")
        elif value is not None and not any(is_same(value, idle) for idle in NOT_YET[name]):
            raise _refused(name)
    return kept


def _refused(name: str) -> ApiError:
    text = f"{name} is not supported with this value; leave it out."
    if name in ELSEWHERE:
        text = f"{name} belongs to {ELSEWHERE[name]}; leave it out here."
    return ApiError(400, text, param=name, code="unsupported_parameter")
