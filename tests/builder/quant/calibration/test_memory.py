"""Memory: what a calibration is said to take, and a refusal that says what to do."""

from pathlib import Path

import pytest

from builder.checkpoint.open import open_checkpoint
from builder.errors import UserError
from builder.quant.calibration.memory import ACTIVATIONS, LOGIT_BYTES, Need, check_memory, need
from builder.quant.calibration.samples import ROW, ROWS
from builder.quant.recipes import RECIPES
from tests.models import tiny_llama


def test_a_model_of_bfloat16_takes_less_than_one_of_float32_and_so_does_its_export(
    tmp_path: Path,
) -> None:
    wide, narrow = (
        need(open_checkpoint(str(tiny_llama(tmp_path / dtype, dtype=dtype))), "fp8")
        for dtype in ("float32", "bfloat16")
    )
    assert wide.num_parameters == narrow.num_parameters > 50_000
    rows = 2 * ACTIVATIONS * ROW * ROWS * 64
    assert wide.total_bytes - narrow.total_bytes == 4 * wide.num_parameters + rows
    assert wide.bytes_per_parameter == 4 + RECIPES["fp8"].extra_bytes


def test_a_search_takes_room_for_gradients(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(tiny_llama(tmp_path / "tiny")))
    more = need(checkpoint, "auto").total_bytes - need(checkpoint, "nvfp4").total_bytes
    assert more == 259 * (ROW * LOGIT_BYTES + 4 * 64)


def test_what_does_not_fit_is_refused_with_a_plan() -> None:
    large = Need(8_000_000_000, 3.0, 26 << 30, 16 << 30)
    check_memory(large, "fp8", 27 << 30)
    with pytest.raises(UserError) as caught:
        check_memory(large, "fp8", 16 << 30)
    assert str(caught.value) == (
        "calibrating 8.00 billion parameters takes about 26.0 GiB of memory (3 bytes each), and 16.0 GiB are available; "
        "fewer samples do not help: use a machine with 28.0 GiB, or --quant fp8-dynamic, which needs no calibration"
    )
