"""Why requests are refused, and what answers wait for: the words of metrics and plans."""

from enum import StrEnum


class Refusal(StrEnum):
    """Why a request was refused: at submit, or on its way there."""

    INVALID = "invalid"
    """It can never be served as it stands."""
    QUEUE_FULL = "queue_full"
    """Too many requests or tokens wait already."""
    PROMPT_QUEUE_FULL = "prompt_queue_full"
    """Too many prompts wait to be encoded."""
    CONSTRAINT_QUEUE_FULL = "constraint_queue_full"
    """Too many constraints wait to be compiled."""
    BUSY = "busy"
    """The machine is too busy to compile its constraint."""
    INTERNAL = "internal"
    """It was right, and something failed."""


class WaitReason(StrEnum):
    """What an answer that waits is waiting for."""

    SLOTS = "slots"
    """As many run as a step can hold."""
    BLOCKS = "blocks"
    """Too few KV blocks are free or evictable."""
    BUDGET = "budget"
    """Those who run used all tokens of the step."""
    STEP = "step"
    """The next step; the last one left nobody waiting."""
    LEADER = "leader"
    """Another choice of the same request computes the prompt that they share."""
