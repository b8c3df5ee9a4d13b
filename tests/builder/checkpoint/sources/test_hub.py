"""`org/name@revision` against a hub on the loopback interface."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.sources.hub import is_hub_name
from builder.errors import CheckpointError, UnsupportedError
from tests.fake_hub import FakeHub, serve
from tests.models import tiny_llama

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = tiny_llama(tmp_path / "model", shards=2)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serve(
        FakeHub("org/tiny", COMMIT, files, revisions=("main", "v1.0", "refs/pr/1"))
    ) as running:
        yield running


@pytest.mark.parametrize("model", ["org/tiny", "org/tiny@v1.0", f"org/tiny@{COMMIT}"])
def test_a_model_is_downloaded_and_its_commit_recorded(model: str, hub: FakeHub) -> None:
    opened = open_checkpoint(model, endpoint=hub.url)
    source = opened.source
    assert (source.kind, source.name, source.commit) == ("hub", "org/tiny", COMMIT)
    assert opened.tensors["model.norm.weight"].read().shape == (64,)
    assert sorted(file.name for file in source.files) == sorted(hub.files)


def test_only_safetensors_and_text_files_are_fetched(hub: FakeHub) -> None:
    wanted = set(hub.files)
    hub.files |= dict.fromkeys(
        ("pytorch_model.bin", "modeling_x.py", "onnx/model.safetensors", "a.gguf"), b""
    )
    open_checkpoint("org/tiny", endpoint=hub.url)
    assert set(hub.fetched) == wanted


def test_a_cached_model_is_not_fetched_again(hub: FakeHub) -> None:
    open_checkpoint("org/tiny", endpoint=hub.url)
    hub.fetched.clear()
    open_checkpoint("org/tiny", endpoint=hub.url)
    assert hub.fetched == []


def test_a_cached_model_opens_when_the_hub_is_away(hub: FakeHub) -> None:
    open_checkpoint("org/tiny", endpoint=hub.url)
    assert open_checkpoint("org/tiny", endpoint=NOBODY).source.commit == COMMIT


def test_an_unknown_model_is_refused(hub: FakeHub) -> None:
    with pytest.raises(CheckpointError, match="no model org/nobody on the hub or on disk"):
        open_checkpoint("org/nobody", endpoint=hub.url)


@pytest.mark.parametrize("revision", ["v2.0", "f" * 40])
def test_an_unknown_revision_is_refused(revision: str, hub: FakeHub) -> None:
    with pytest.raises(CheckpointError, match=f"org/tiny has no revision {revision}"):
        open_checkpoint(f"org/tiny@{revision}", endpoint=hub.url)


def test_a_gated_model_says_how_to_get_in(hub: FakeHub) -> None:
    hub.is_gated = True
    with pytest.raises(CheckpointError, match=r"org/tiny is gated: .* `hf auth login`"):
        open_checkpoint("org/tiny", endpoint=hub.url)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "refused org/tiny: .*401"), (500, "answered 500 .*, and it is not in the cache")],
)
def test_a_hub_that_is_out_of_order_is_one_clear_line(
    status: int, reason: str, hub: FakeHub
) -> None:
    hub.status = status
    with pytest.raises(CheckpointError, match=reason) as caught:
        open_checkpoint("org/tiny", endpoint=hub.url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shows_bars", [False, True])
def test_bars_are_shown_on_demand_alone(
    shows_bars: bool, hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    open_checkpoint("org/tiny", endpoint=hub.url, shows_bars=shows_bars)
    assert ("Fetching" in capsys.readouterr().err) == shows_bars


def test_an_absent_hub_is_one_clear_line(hub: FakeHub) -> None:
    with pytest.raises(
        CheckpointError, match="can't reach the hub for org/tiny, and it is not in the cache"
    ):
        open_checkpoint("org/tiny", endpoint=NOBODY)


def test_offline_mode_is_respected(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        open_checkpoint("org/tiny", endpoint=hub.url)
    assert hub.fetched == []


def test_a_model_with_pickles_only_is_refused(hub: FakeHub) -> None:
    hub.files = {name: raw for name, raw in hub.files.items() if "safetensors" not in name}
    hub.files["pytorch_model.bin"] = b"cos\nsystem\n"
    with pytest.raises(
        UnsupportedError, match=r"org/tiny has no safetensors on the hub.*Convert once with"
    ):
        open_checkpoint("org/tiny", endpoint=hub.url)
    assert "pytorch_model.bin" not in hub.fetched


def test_a_folder_wins_over_a_model_of_the_same_name(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_llama(tmp_path / "org" / "tiny")
    assert open_checkpoint("org/tiny", endpoint=hub.url).source.kind == "hf"


@pytest.mark.parametrize(
    "name", ["a/b", "HuggingFaceTB/SmolLM2-135M@main", "a/b@refs/pr/1", f"a.b/c_d@{COMMIT}"]
)
def test_names_of_models_are_recognized(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize(
    "name", ["a", "/a/b", "./a/b", "a/b/c", "a/", "a/b@", "a/b.gguf", "é/b", "a/b c"]
)
def test_what_is_no_name_of_a_model_is_not_asked_for(name: str) -> None:
    assert not is_hub_name(name)
