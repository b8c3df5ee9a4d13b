"""Read a config.json so that nothing in it is silently ignored.

Every field is either read, required to have its harmless value, or on the list of fields that don't change
the graph; `finish` refuses the rest by name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from builder.artifact.config import RopeConfig
from builder.errors import CheckpointError, UnsupportedError

HARMLESS = frozenset(
    {
        "architectures",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_llama_config",
        "label2id",
        "max_length",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tokenizer_class",
        "tokenizer_name",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
    }
)
"""Fields about training, files, tokens (read elsewhere) or library state; none changes the graph.
So do fields that begin with an underscore, which are the library's own."""

MAX_SIZE = (1 << 31) - 1
MIN_NUMBER, MAX_NUMBER = 1e-12, 3e38
"""Numbers whose inverses, times any position, float32 still holds."""


class ConfigReader:
    """Takes fields of a raw config one by one and remembers which."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._read: set[str] = set()

    def get(self, name: str, default: object = None) -> object:
        """Give a field, or `default` if it is absent or null."""
        self._read.add(name)
        value = self._raw.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None, *, most: int = MAX_SIZE) -> int:
        """Give a field that must be a positive integer, `most` at the largest.

        Raises:
            CheckpointError: it is absent or another thing.
        """
        value = self.get(name, default)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}, which this architecture needs")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise CheckpointError(
                f"config.json: {name} is {_shown(value)}; one integer from 1 to {most} is supported"
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Give a field that must be a positive finite number.

        Raises:
            CheckpointError: it is absent or another thing.
        """
        value = self.get(name, default)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}, which this architecture needs")
        if not is_positive(value):
            raise CheckpointError(
                f"config.json: {name} is {_shown(value)}; it must be a number above 0"
            )
        return float(value)  # type: ignore[arg-type]

    def flag(self, name: str, *, default: bool) -> bool:
        """Give a field that must be true or false.

        Raises:
            CheckpointError: it is another thing.
        """
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(
                f"config.json: {name} is {_shown(value)}; it must be true or false"
            )
        return value

    def choice(self, name: str, known: Iterable[str], default: str) -> str:
        """Give a field that must be one of some names.

        Raises:
            UnsupportedError: it is none of them.
        """
        value = self.get(name, default)
        if value not in (known := sorted(known)):
            raise UnsupportedError(
                f"config.json: {name} is {_shown(value)}; supported: {', '.join(known)}"
            )
        return str(value)

    def require(self, name: str, *allowed: object) -> None:
        """Refuse a field unless it is absent, null, or has one of the values that change nothing.

        Raises:
            UnsupportedError: it has another value.
        """
        value = self.get(name)
        if value is not None and value not in allowed:
            raise UnsupportedError(
                f"config.json: {name} is {_shown(value)}, which is not supported; "
                f"supported: {' or '.join(map(_shown, allowed)) or 'leave it out'}"
            )

    def finish(self) -> None:
        """Refuse fields that nobody read.

        Raises:
            UnsupportedError: names them.
        """
        left = sorted(
            name
            for name, value in self._raw.items()
            if value is not None
            and name not in self._read
            and name not in HARMLESS
            and not name.startswith("_")
        )
        if left:
            raise UnsupportedError(
                f"config.json has {', '.join(left)}, which may change the model and is not implemented; "
                "remove the field if it does not"
            )


def read_rope(reader: ConfigReader, max_positions: int, head_dim: int) -> RopeConfig:
    """Read rotary settings in both spellings: `rope_theta` with `rope_scaling`, or `rope_parameters`.

    Raises:
        UnsupportedError: the scaling is of a kind that is not implemented.
        CheckpointError: a setting has no sense.
    """
    scaling = reader.get("rope_scaling")
    parameters = reader.get("rope_parameters")
    if scaling is not None and parameters is not None and scaling != parameters:
        raise CheckpointError(
            "config.json has rope_scaling and rope_parameters, and they differ; keep one"
        )
    chosen = parameters if parameters is not None else scaling if scaling is not None else {}
    if not isinstance(chosen, dict):
        raise CheckpointError(
            f"config.json: rope scaling is {_shown(chosen)}; it must be an object"
        )
    theta = reader.number("rope_theta", 10000.0)
    fields = {name: value for name, value in chosen.items() if value is not None}
    theta = _number(fields, "rope_theta", theta)
    kind = fields.pop("rope_type", fields.pop("type", "default"))
    fields.pop("type", None)
    rope = _ROPE_KINDS.get(kind) if isinstance(kind, str) else None
    if rope is None:
        raise UnsupportedError(
            f"rope type {_shown(kind)} is not supported; supported: {', '.join(sorted(_ROPE_KINDS))}"
        )
    read = rope(theta, fields, max_positions, head_dim)
    if fields:
        raise UnsupportedError(
            f"rope scaling of type {kind} has {', '.join(sorted(fields))}, which is not implemented"
        )
    return read


def write_rope(rope: RopeConfig) -> dict[str, Any]:
    """Give rotary settings as fields of a config.json, of which `read_rope` makes the same.

    Raises:
        UnsupportedError: config.json has no fields for them that other programs know.
    """
    scaling: dict[str, Any] = {"rope_type": rope.kind}
    if rope.kind == "default":
        return {"rope_theta": rope.theta}
    if rope.kind == "factors":
        raise UnsupportedError(
            "the model has a rotary factor per frequency, as GGUF files have them, for which config.json has no field; "
            "compile and export the Hugging Face checkpoint of the same model"
        )
    scaling["factor"] = rope.factor
    if rope.kind == "llama3":
        scaling["low_freq_factor"] = rope.low_freq_factor
        scaling["high_freq_factor"] = rope.high_freq_factor
        scaling["original_max_position_embeddings"] = rope.original_max_positions
    return {"rope_theta": rope.theta, "rope_scaling": scaling}


def _default(theta: float, fields: dict[str, Any], max_positions: int, head_dim: int) -> RopeConfig:
    del fields, max_positions, head_dim
    return RopeConfig(theta)


def _linear(theta: float, fields: dict[str, Any], max_positions: int, head_dim: int) -> RopeConfig:
    del max_positions, head_dim
    return RopeConfig(theta, "linear", factor=_number(fields, "factor"))


def _llama3(theta: float, fields: dict[str, Any], max_positions: int, head_dim: int) -> RopeConfig:
    del head_dim
    low, high = _number(fields, "low_freq_factor"), _number(fields, "high_freq_factor")
    if low >= high:
        raise CheckpointError(
            f"rope scaling: low_freq_factor is {low} and high_freq_factor {high}; low must be below high"
        )
    return RopeConfig(
        theta,
        "llama3",
        factor=_number(fields, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=int(
            _number(fields, "original_max_position_embeddings", max_positions)
        ),
    )


def _factors(theta: float, fields: dict[str, Any], max_positions: int, head_dim: int) -> RopeConfig:
    del max_positions
    factors = fields.pop("factors", None)
    if not isinstance(factors, list) or not all(map(is_positive, factors)):
        raise CheckpointError("rope scaling of type factors needs a list of numbers above 0")
    if len(factors) != head_dim // 2:
        raise CheckpointError(
            f"rope scaling has {len(factors)} factors, the head size needs {head_dim // 2}"
        )
    return RopeConfig(theta, "factors", factors=tuple(map(float, factors)))


_ROPE_KINDS = {"default": _default, "linear": _linear, "llama3": _llama3, "factors": _factors}


def _number(fields: dict[str, Any], name: str, default: float | None = None) -> float:
    value = fields.pop(name, default)
    if not is_positive(value):
        raise CheckpointError(
            f"rope scaling: {name} is {_shown(value)}; it must be a number above 0"
        )
    return float(value)


def is_positive(value: object) -> bool:
    """Tell whether a JSON value is a number above 0 that float32 can hold."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and MIN_NUMBER < value < MAX_NUMBER  # type: ignore[operator]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
