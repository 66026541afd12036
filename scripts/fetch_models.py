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
    folder = cache / WHEEL.replace("==", "-")
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        scratch = Path(temporary)
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311"]
        command += ["--platform=manylinux2014_x86_64", "-d", str(scratch), "-r", str(requirements)]
        subprocess.run(command, check=True)
        unpacked = scratch / "models"
        unpacked.mkdir()
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
            members = [name for name in wheel.namelist() if name.endswith(".tflite")]
            for name in members:
                with wheel.open(name) as source, (unpacked / Path(name).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        if len(members) != MODELS:
            raise RuntimeError(f"{WHEEL} holds {len(members)} models, expected {MODELS}")
        try:
            unpacked.replace(folder)
        except OSError:
            # Another process was faster; its models are the same ones.
            if not folder.is_dir():
                raise
    return folder


if __name__ == "__main__":
    print(fetch(*[Path(argument) for argument in sys.argv[1:2]]))
