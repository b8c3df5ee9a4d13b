"""Chooses a format for each layer under a budget of bits, by modelopt's search.

A layer's loss in a format is the square of its error, weighed by gradients of the model's own loss; what must be one
matrix elsewhere, such as q, k and v, gets one format. The head is left out, and not counted.
"""

from dataclasses import dataclass
from typing import Any

from builder.errors import BuildError
from builder.quant.calibration.measuring import Measuring, count_tokens, run_backwards
from builder.quant.calibration.samples import Batch

HEADS = ["*lm_head*"]
SCORED = 8
"""Batches at most that gradients are taken of, each of which costs as much as five that are only run."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found."""

    bits: float
    """Of a weight, on average."""
    layers: tuple[str, ...]
    """That formats were chosen for."""


def search(
    model: Any, configs: list[dict[str, Any]], bits: float, measuring: Measuring
) -> Searched:
    """Quantize a model in place, each layer to the best of formats.

    Raises:
        BuildError: nothing was found within the budget.
    """
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)

    scored = measuring.runs[:SCORED]

    def weigh(model: Any, batch: Batch) -> None:
        if batch is scored[0]:
            measuring.progress.stage("weigh errors of layers", count_tokens(scored))
        run_backwards(model, batch, measuring.progress)

    _, state = mtq.auto_quantize(
        model,
        {"effective_bits": bits, "cost": {"excluded_module_name_patterns": HEADS}},
        configs,
        data_loader=measuring.runs,
        forward_step=measuring.one,
        forward_backward_step=weigh,
        disabled_layers=HEADS,
        num_calib_steps=len(measuring.runs),
        num_score_steps=len(scored),
    )
    best = state["best"]
    if not best["is_satisfied"]:
        raise BuildError(f"no choice of formats has {bits} bits a weight; give --auto-quant more")
    head = model.get_output_embeddings()
    groups = [each["module_names"] for each in state["candidate_stats"].values()]
    layers = [name for group in groups for name in group if model.get_submodule(name) is not head]
    return Searched(float(best["constraints"]["effective_bits"]), tuple(layers))
