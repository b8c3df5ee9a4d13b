"""What a front is told by the parameters of its model's config.pbtxt: its face, and what is served behind it.

Fronts with the same deployment and artifact share one engine host.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.errors import UserError, unknown_name
from triton_backend.config import EngineConfig
from triton_backend.engine_options import OPTIONS, read_options

DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
THREADS = re.compile(r"[1-9][0-9]{0,3}")
NEEDED = ("face", "deployment", "artifact")
SWITCHES = {"true": True, "false": False}
OPTIONAL = ("threads", "allow_missed_gate", *OPTIONS)


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """One front of a deployment."""

    face: str
    deployment: str
    artifact: Path
    threads: int | None = None
    """Threads of the engine; None lets it take every core it may use."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    allow_missed_gate: bool = False
    """Serve an artifact that missed its quality gate all the same."""


def read_settings(parameters: Mapping[str, str]) -> FrontSettings:
    """Read the parameters of a config.pbtxt.

    Raises:
        UserError: one is missing, unknown or wrong.
    """
    for name in NEEDED:
        if not parameters.get(name):
            raise UserError(f"config.pbtxt lacks the parameter {name}; run builder deploy again")
    for name in parameters:
        if name not in NEEDED + OPTIONAL:
            raise UserError(unknown_name("parameter in config.pbtxt", name, NEEDED + OPTIONAL))
    deployment, artifact = parameters["deployment"], Path(parameters["artifact"])
    if not DEPLOYMENT.fullmatch(deployment):
        raise UserError(
            "the parameter deployment must be 1 to 128 letters, digits, '.', '_' and '-', beginning "
            f"with a letter or a digit; got {deployment[:200]!r}"
        )
    if not artifact.is_absolute():
        raise UserError(f"the parameter artifact must be an absolute path; got {artifact}")
    threads = parameters.get("threads")
    if threads is not None and not THREADS.fullmatch(threads):
        raise UserError(f"the parameter threads must be from 1 to 9999; got {threads[:20]!r}")
    switch = parameters.get("allow_missed_gate", "false")
    if switch not in SWITCHES:
        raise UserError(
            f"the parameter allow_missed_gate must be true or false; got {switch[:20]!r}"
        )
    return FrontSettings(
        face=parameters["face"],
        deployment=deployment,
        artifact=artifact,
        threads=None if threads is None else int(threads),
        engine=read_options({name: parameters[name] for name in OPTIONS if name in parameters}),
        allow_missed_gate=SWITCHES[switch],
    )
