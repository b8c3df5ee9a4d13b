"""The torch model of a checkpoint, by transformers' own class and our own reader: never by code of the checkpoint's."""

from typing import Any

from builder.checkpoint.tensors import Checkpoint, Tensor
from builder.checkpoint.weights import EMBEDDING, HEAD, has_tied_head
from builder.errors import BuildError, UnsupportedError, unknown_name

NARROW = "bfloat16"


def stored_dtype(checkpoint: Checkpoint) -> str:
    """Give what its torch model holds weights in: bfloat16 where all are stored so, else float32, which is exact for all."""
    stored = {tensor.stored for tensor in checkpoint.tensors.values()}
    return NARROW if stored == {NARROW} else "float32"


def torch_model(checkpoint: Checkpoint) -> Any:
    """Give a transformers model with the weights of a checkpoint, ready to be run.

    Raises:
        CheckpointError: a weight can't be read.
        UnsupportedError: transformers has no class for it.
        BuildError: weights and class do not fit together.
    """
    import torch  # noqa: PLC0415 (of the extra `quant`)
    from transformers import CONFIG_MAPPING  # noqa: PLC0415
    from transformers.models.auto.modeling_auto import (  # noqa: PLC0415
        MODEL_FOR_CAUSAL_LM_MAPPING,
    )

    fields = {name: value for name, value in checkpoint.config.items() if name != "auto_map"}
    kind = str(fields.pop("model_type"))
    if kind not in CONFIG_MAPPING:
        raise UnsupportedError(
            f"transformers can't build it: {unknown_name('model type', kind, CONFIG_MAPPING)}"
        )
    config = CONFIG_MAPPING[kind].from_dict(fields)
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    config.architectures = [model_class.__name__]  # modelopt's export asks for it
    config.tie_word_embeddings = has_tied_head(checkpoint)
    dtype = getattr(torch, stored_dtype(checkpoint))
    weights = {name: _torch_tensor(tensor, dtype) for name, tensor in _used(checkpoint).items()}
    model, found = model_class.from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    wrong = sorted(name for key in ("missing_keys", "unexpected_keys") for name in found[key])
    if wrong or found["mismatched_keys"]:
        raise BuildError(
            f"transformers' {model_class.__name__} and the checkpoint do not fit together: "
            f"{', '.join([*wrong, *map(str, found['mismatched_keys'])][:5])}"
        )
    return model.eval()


def _used(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Leave out what a model computes by itself: rotary frequencies, and a head that is the embedding table."""
    is_tied = has_tied_head(checkpoint) and EMBEDDING in checkpoint.tensors
    return {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if not name.endswith("rotary_emb.inv_freq") and not (is_tied and name == HEAD)
    }


def _torch_tensor(tensor: Tensor, dtype: Any) -> Any:
    """Read a weight as it is stored; bfloat16 is never widened on the way, which would take three times its bytes."""
    import torch  # noqa: PLC0415 (of the extra `quant`)

    if tensor.raw is not None and tensor.stored == NARROW and dtype == torch.bfloat16:
        return torch.from_numpy(tensor.raw().copy()).view(torch.bfloat16).reshape(tensor.shape)
    return torch.from_numpy(tensor.read().copy()).to(dtype)
