"""Whether the files of an engine are those that its manifest speaks of; whether a plan makes sense is the library's to say."""

from pathlib import Path

from builder.artifact.manifest import EngineRecord, Manifest
from builder.artifact.store import Artifact
from builder.errors import ArtifactError
from builder.targets.cpu.plan import KV_FORMS, Geometry, pool_width, read_header


def checked_files(artifact: Artifact, record: EngineRecord) -> tuple[bytes, Path]:
    """Read the plan of an engine, and find the file of its weights.

    Raises:
        ArtifactError: they don't fit each other, or the manifest.
    """
    plan = artifact.path(record.path).read_bytes()
    geometry, weights_bytes = read_header(plan)
    if not _is_fit(geometry, artifact.manifest):
        raise ArtifactError(
            "the engine's plan is not as its manifest says; compile the model again"
        )
    if record.weights is None:
        raise ArtifactError(
            "the engine's weights are not named by its manifest; compile the model again"
        )
    weights = artifact.path(record.weights)
    found = weights.stat().st_size if weights.is_file() else 0
    if found != weights_bytes:
        raise ArtifactError(
            f"the engine's weights have {found} bytes, its plan speaks of {weights_bytes}; compile the model again"
        )
    return plan, weights


def _is_fit(geometry: Geometry, manifest: Manifest) -> bool:
    """Tell whether a plan cuts its pool as the manifest says: one group of all layers, without a window."""
    if len(manifest.kv.groups) != 1:
        return False
    (group,) = manifest.kv.groups
    found = (
        geometry.num_layers,
        geometry.num_kv_heads,
        pool_width(geometry.head_dim),
        geometry.kv_form,
        geometry.block_size,
        geometry.vocab_size,
    )
    heads = (len(group.layers), group.num_kv_heads, group.head_dim, KV_FORMS.get(group.dtype))
    return (
        found == (*heads, manifest.kv.block_size, manifest.model.vocab_size)
        and group.window is None
    )
