"""Plans whose numbers contradict each other, each within its own range: the engine refuses them before it runs."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.artifact.store import Artifact
from builder.errors import ArtifactError
from builder.targets.cpu.execute import open_executor
from builder.targets.cpu.plan import Code, Form, Operation
from tests.builder.targets.cpu.plan_runner import BUFFER, HEADER, OPERATION, WEIGHT
from tests.builder.targets.cpu.precisions import PRECISIONS
from tests.built import compile_model
from tests.models import tiny_llama

FIELDS = tuple(Operation.__dataclass_fields__)


class PlanBytes:
    """The bytes of a plan, to be changed field by field."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._bytes = bytearray(artifact.path(artifact.manifest.engines[0].path).read_bytes())
        _, _, self._buffers, self._weights, self._operations, *_ = HEADER.unpack_from(self._bytes)

    def get(self, code: Code, field: str) -> int:
        """Give a field of the first operation of a kind."""
        return int(struct.unpack_from("<i", self._bytes, self._places(code, field)[0])[0])

    def set(self, code: Code, field: str, value: int) -> None:
        """Change a field of the last operation of a kind."""
        struct.pack_into("<i", self._bytes, self._places(code, field)[-1], value)

    def set_reserved(self) -> None:
        struct.pack_into("<i", self._bytes, self._places(Code.LINEAR, "code")[0] + 124, 1)

    def set_weight_bytes(self, index: int, value: int) -> None:
        place = HEADER.size + BUFFER.size * self._buffers + WEIGHT.size * index
        struct.pack_into("<q", self._bytes, place + 8, value)

    def set_weight_form(self, index: int, form: Form, group: int) -> None:
        place = HEADER.size + BUFFER.size * self._buffers + WEIGHT.size * index
        struct.pack_into("<2i", self._bytes, place + 16, form, group)

    def set_groups(self, group: int) -> None:
        """Let buffers and weights of int8 share a scale among so many numbers."""
        for kind, count, at, form in (
            (BUFFER, self._buffers, 12, 4),
            (WEIGHT, self._weights, 20, 16),
        ):
            start = HEADER.size + (BUFFER.size * self._buffers if kind is WEIGHT else 0)
            for place in range(start, start + kind.size * count, kind.size):
                if struct.unpack_from("<i", self._bytes, place + form)[0] == 2:
                    struct.pack_into("<i", self._bytes, place + at, group)

    def refused(self, folder: Path) -> str:
        """Give the words in which the engine refuses the plan."""
        (record,) = self._artifact.manifest.engines
        for name in (record.path, str(record.weights)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self._artifact.path(name).read_bytes())
        (folder / record.path).write_bytes(self._bytes)
        with pytest.raises(ArtifactError) as error:
            open_executor(Artifact(folder, self._artifact.manifest), threads=1)
        return str(error.value)

    def _places(self, code: Code, field: str) -> list[int]:
        start = HEADER.size + BUFFER.size * self._buffers + WEIGHT.size * self._weights
        places = range(start, len(self._bytes), OPERATION.size)
        found = [p for p in places if struct.unpack_from("<i", self._bytes, p)[0] == code]
        return [place + 4 * FIELDS.index(field) for place in found]


def turns_by_another_table(plan: PlanBytes) -> None:
    plan.set(Code.ATTENTION, "extra", plan.get(Code.RMS_NORM, "weight"))


def turns_what_was_not_turned(plan: PlanBytes) -> None:
    plan.set(Code.APPEND, "rope_dim", 0)


def turns_neighbours_in_one_of_two(plan: PlanBytes) -> None:
    plan.set(Code.ATTENTION, "pairs_neighbours", 1)


def reads_another_layer(plan: PlanBytes) -> None:
    plan.set(Code.ATTENTION, "layer", 0)


def has_sines_of_one_number(plan: PlanBytes) -> None:
    plan.set_weight_bytes(plan.get(Code.APPEND, "extra") + 1, 4)


def has_tables_of_one_number(plan: PlanBytes) -> None:
    for index in (0, 1):
        plan.set_weight_bytes(plan.get(Code.APPEND, "extra") + index, 4)


def has_something_in_reserve(plan: PlanBytes) -> None:
    plan.set_reserved()


@pytest.mark.parametrize(
    "change",
    [
        turns_by_another_table,
        turns_what_was_not_turned,
        turns_neighbours_in_one_of_two,
        reads_another_layer,
        has_sines_of_one_number,
        has_tables_of_one_number,
        has_something_in_reserve,
    ],
)
def test_an_operation_that_contradicts_others_is_refused(
    change: Callable[[PlanBytes], None], plain: Artifact, tmp_path: Path
) -> None:
    plan = PlanBytes(plain)
    change(plan)
    assert "operation" in plan.refused(tmp_path)


def test_rotary_tables_that_end_before_the_longest_sequence_are_refused(
    plain: Artifact, tmp_path: Path
) -> None:
    plan = PlanBytes(plain)
    half = plan.get(Code.APPEND, "rope_dim") // 2
    for index in (0, 1):
        plan.set_weight_bytes(plan.get(Code.APPEND, "extra") + index, 4 * half * 5)
    assert "rotary tables hold 5 positions" in plan.refused(tmp_path)


def test_groups_that_no_kernel_fits_are_refused(tmp_path: Path) -> None:
    """An epilogue works on 512 outputs at most: groups of 192 gates and their factors don't fill them."""
    sizes = {"hidden_size": 192, "intermediate_size": 192 * 28, "num_attention_heads": 12}
    model = tiny_llama(tmp_path / "model", num_hidden_layers=1, **sizes)
    built = compile_model(model, tmp_path / "built", **PRECISIONS["int8-g64"])
    plan = PlanBytes(built)
    plan.set_groups(192)
    assert "buffer" in plan.refused(tmp_path / "spoiled")
