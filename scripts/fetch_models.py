"""Fetch the 14 real models of the mediapipe 0.10.14 wheel with pip, unpack them once, and print their folder.

Usage: python scripts/fetch_models.py [CACHE_DIR]

The wheel (Apache-2.0) is pinned by its hash. It is only unpacked, never installed, so any Python and any
platform will do.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

WHEEL = "mediapipe==0.10.14"
SHA256 = "a807328339e7356fda0bb14df12fedbf1d33bdf81649c5f8666b0026b1cc30b4"
MODELS = 14
DEFAULT_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "models"


def fetch(cache: Path = DEFAULT_CACHE) -> Path:
    """The folder with the models under `cache`; pip fetches the wheel if they are not there yet.

    Raises:
        subprocess.CalledProcessError: pip could not fetch the wheel.
        RuntimeError: The wheel does not hold the models that it should.
    """
    platform = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--platform=manylinux2014_x86_64"]
    return unpacked_wheel(WHEEL, SHA256, cache, platform, expected=MODELS)


def unpacked_wheel(
    wheel: str, sha256: str, cache: Path, platform: Sequence[str], *, expected: int | None = None
) -> Path:
    """The folder with the `.tflite` files of a wheel under `cache`; pip fetches it if it is not there yet.

    Args:
        wheel: Name and version, `name==1.2.3`.
        sha256: The wheel's hash.
        cache: Where the folder is.
        platform: Options of pip that say for which platform and which Python the wheel is.
        expected: How many files there have to be; None for any number.

    Raises:
        subprocess.CalledProcessError: pip could not fetch the wheel.
        RuntimeError: The wheel does not hold the models that it should.
    """
    folder = cache / wheel.replace("==", "-")
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        scratch = Path(temporary)
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"{wheel} --hash=sha256:{sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary=:all:", *platform, "-d", str(scratch), "-r", str(requirements)]
        subprocess.run(command, check=True)
        unpacked = scratch / "models"
        unpacked.mkdir()
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as archive:
            members = [name for name in archive.namelist() if name.endswith(".tflite")]
            for name in members:
                with archive.open(name) as source, (unpacked / Path(name).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        if expected is not None and len(members) != expected:
            raise RuntimeError(f"{wheel} holds {len(members)} models, expected {expected}")
        try:
            unpacked.replace(folder)
        except OSError:
            # Another process was faster; its models are the same ones.
            if not folder.is_dir():
                raise
    return folder


if __name__ == "__main__":
    print(fetch(*[Path(argument) for argument in sys.argv[1:2]]))
