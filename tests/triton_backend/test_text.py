"""The text stage of an engine without text."""

import pytest

from builder.errors import RequestError
from triton_backend.request import Request, SamplingParams
from triton_backend.text import NoText, TextStage


def test_it_gives_no_text_and_never_stops() -> None:
    stage: TextStage = NoText()
    stage.start(("a", 0), Request("a", (1,)))
    assert stage.extend(("a", 0), (5,)) == ("", None)
    assert stage.finish(("a", 0)) == ""


def test_it_refuses_stop_strings_without_quoting_them() -> None:
    with pytest.raises(RequestError, match="stop strings need text") as refused:
        NoText().start(("a", 0), Request("a", (1,), SamplingParams(stop=("secret",))))
    assert "secret" not in str(refused.value)
