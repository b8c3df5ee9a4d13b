"""Names that a shell would misread are refused before Triton waits for ever for what comes of them."""

from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.launcher.names import check_model_name, check_private_folder


@pytest.mark.parametrize("name", ["tiny", "a.b-c_d", "a+b@1=2,3:4%", "\u00e4"])
def test_plain_names_pass(name: str) -> None:
    check_model_name(Path("/any where/$", name))
    check_private_folder(Path("/var", name))


@pytest.mark.parametrize("sign", list(" \"'$`\\;&|<>()*?[]{}!~#\n\t\x1b\udcff"))
def test_signs_of_a_shell_do_not(sign: str) -> None:
    with pytest.raises(UserError, match="a model's name may have"):
        check_model_name(Path("/repository", f"a{sign}b"))
    with pytest.raises(UserError, match="set TMPDIR to another folder"):
        check_private_folder(Path(f"/a{sign}b", "folder"))
