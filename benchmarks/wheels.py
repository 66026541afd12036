"""Models that PyPI wheels carry: fetched by pip once, unpacked, never installed."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "models"

#: Wheels beside the one that scripts/fetch_models.py fetches, pinned by hash.
WHEELS = {
    "pyopen-wakeword==1.1.0": "754347a59de2b3d378a0cbc404a8b41164036e74fa1c185f88056974e4bfb6b4",
    "pymicro-wakeword==2.5.0": "3869f536402b1254e3be3549d3a462ecd6ed21ce2c3e77ec8eb501c3c700417c",
    "basic-pitch==0.4.0": "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
}


def fetch_wheels() -> dict[str, list[Path]]:
    """The `.tflite` files of each wheel of `WHEELS`."""
    return {wheel: sorted(_unpacked(wheel, digest).glob("*.tflite")) for wheel, digest in WHEELS.items()}


def _unpacked(wheel: str, digest: str) -> Path:
    """The folder with the models of one wheel."""
    folder = CACHE / wheel.replace("==", "-")
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        scratch = Path(temporary)
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"{wheel} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary=:all:", "--platform=manylinux_2_35_x86_64", "-d", temporary]
        subprocess.run([*command, "-r", str(requirements)], check=True)
        unpacked = scratch / "models"
        unpacked.mkdir()
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as archive:
            for name in archive.namelist():
                if name.endswith(".tflite"):
                    (unpacked / Path(name).name).write_bytes(archive.read(name))
        unpacked.rename(folder)
    return folder
