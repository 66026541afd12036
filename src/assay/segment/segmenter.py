"""Tap to segment: the image encoder once per image, the mask decoder per tap, on any lane."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay import graph
from assay.conversion.sam2.prompt import PromptEncoder
from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.job import Job, input_specs, output_specs
from assay.lanes.native import load_arrays, save_arrays
from assay.records.files import write_atomic
from assay.scratch import Scratch
from assay.segment import images

Floats = NDArray[np.float32]

_FEATURES = ("image_embeddings", "feat_s1", "feat_s0")
_CACHED_IMAGES = 16


@dataclass(frozen=True)
class Prompt:
    """Where the object is, in pixels of the image as it is in the file.

    Attributes:
        points: x and y of each point.
        labels: 1 for a point on the object, 0 for one beside it; as many as points.
        box: x1, y1, x2, y2 round the object, or None.
    """

    points: Sequence[tuple[float, float]] = ()
    labels: Sequence[int] = ()
    box: tuple[float, float, float, float] | None = None

    @property
    def tokens(self) -> int:
        """Tokens of the sparse prompt that it needs."""
        return len(self.points) + (1 if self.box is None else 3)


@dataclass(frozen=True)
class Segmentation:
    """What one prompt gave.

    Attributes:
        logits: `[3, height, width]` float32 at the image's size; the object is where they are over 0.
        iou: `[3]`, the decoder's own estimate of each mask's IoU.
        times_ms: `encoder_load`, `encoder`, `decoder_load`, `decoder` (first inference, host to host), and
            `decoder_p50` where runs were timed. The encoder's are absent where its features were cached.
        cached: True if the encoder did not run.
    """

    logits: Floats
    iou: Floats
    times_ms: Mapping[str, float]
    cached: bool

    @property
    def masks(self) -> NDArray[np.bool_]:
        """`[3, height, width]`."""
        return self.logits > 0

    @property
    def best(self) -> int:
        """Which mask the decoder holds for the best."""
        return int(np.argmax(self.iou))


@dataclass
class Segmenter:
    """The two models and the host parts of SAM 2.1, on one lane.

    Attributes:
        encoder: `.tflite` of `sam2.1-hiera-tiny-image-encoder`.
        decoder: `.tflite` of `sam2.1-hiera-tiny-mask-decoder`; its `.prompt.npz` lies beside it.
        lane: Name of the lane that runs both.
        threads: CPU threads.
        cache: Folder for features of images seen, or None to keep none.
        time_limit_s: For each model.
    """

    encoder: Path
    decoder: Path
    lane: str = "cpu_xnnpack"
    threads: int = 2
    cache: Path | None = None
    time_limit_s: float = 600.0
    _prompt: PromptEncoder = field(init=False, repr=False)
    _signatures: dict[Path, graph.Signature] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._signatures = {path: graph.read(path).signatures[0] for path in (self.encoder, self.decoder)}
        _check(self.encoder, self._signatures[self.encoder], ("pixel_values",), _FEATURES)
        _check(self.decoder, self._signatures[self.decoder], (*_FEATURES, "sparse_prompt"), ("masks", "iou"))
        self._prompt = PromptEncoder.read(self.decoder.with_suffix(".prompt.npz"))
        features = {spec.name: spec.shape for spec in output_specs(self._signatures[self.encoder])}
        for spec in input_specs(self._signatures[self.decoder], {}):
            if spec.name in features and features[spec.name] != spec.shape:
                raise AssayError(
                    f"{self.encoder.name} gives {spec.name} as {features[spec.name]}, "
                    f"{self.decoder.name} takes {spec.shape}",
                    fix="convert both for the same image size (full with v2, half with v2-half)",
                )
        available = registry.find(self.lane).available()
        if not available.available:
            raise AssayError(f"lane {self.lane} cannot run here: {available.reason}", fix=available.fix)

    @property
    def image_size(self) -> int:
        """Side of the square that images are stretched to, in pixels."""
        return self._prompt.image_size

    def segment(self, image: images.Pixels, prompt: Prompt, runs: int = 0) -> Segmentation:
        """The three masks of one prompt.

        Args:
            image: `[height, width, 3]` uint8 RGB.
            prompt: Points, a box, or both.
            runs: Timed inferences of the decoder besides the one that counts.

        Raises:
            AssayError: The prompt does not fit the decoder or the image, or the lane could not run a model.
        """
        height, width = image.shape[:2]
        sparse = self.encode_prompt(prompt, height, width)
        features, times = self._features(image)
        cached = not times
        arrays = {**features, "sparse_prompt": sparse}
        outputs, decoder_times = self._run(self.decoder, arrays, runs)
        for name, value in decoder_times.items():
            times[f"decoder{name}"] = value
        logits = images.upscale_logits(outputs["masks"][0], height, width)
        return Segmentation(logits, outputs["iou"][0], times, cached)

    def encode_prompt(self, prompt: Prompt, height: int, width: int) -> Floats:
        """The decoder's sparse prompt, `[1, tokens, C]`, for an image of this size in pixels."""
        inputs = self._signatures[self.decoder].inputs
        shape = next(entry.tensor.shape for entry in inputs if entry.name == "sparse_prompt")
        if len(prompt.points) != len(prompt.labels):
            raise AssayError(
                f"{len(prompt.points)} points and {len(prompt.labels)} labels", fix="one label a point"
            )
        if not prompt.points and prompt.box is None:
            raise AssayError("neither a point nor a box is given", fix="give --point X,Y or --box X1,Y1,X2,Y2")
        if prompt.tokens != shape[1]:
            raise AssayError(
                f"this prompt needs {prompt.tokens} tokens, {self.decoder.name} takes {shape[1]}",
                fix=f"convert the decoder with --set tokens={prompt.tokens}",
            )
        corners = [] if prompt.box is None else [prompt.box[:2], prompt.box[2:]]
        for x, y in (*prompt.points, *corners):
            if not (0 <= x <= width and 0 <= y <= height):
                raise AssayError(f"({x:g}, {y:g}) lies outside of the image, {width} x {height} pixels")
        scale = np.array([self.image_size / width, self.image_size / height])
        points = (np.array(prompt.points, np.float32).reshape(-1, 2) * scale).astype(np.float32)
        box = (
            None
            if prompt.box is None
            else (np.array(prompt.box, np.float32) * np.tile(scale, 2)).astype(np.float32)
        )
        return self._prompt.encode(points, np.array(prompt.labels, np.int64), box)

    def _features(self, image: images.Pixels) -> tuple[dict[str, Floats], dict[str, float]]:
        """The encoder's outputs, from the cache where they are there; times are empty then."""
        path = None
        if self.cache is not None:
            key = hashlib.sha256(repr((image.shape, self.lane)).encode())
            for part in (image.tobytes(), self.encoder.read_bytes()):
                key.update(hashlib.sha256(part).digest())
            path = self.cache / f"features-{key.hexdigest()[:32]}.npz"
            if (kept := self._read_cache(path)) is not None:
                return kept, {}
        outputs, times = self._run(self.encoder, {"pixel_values": images.preprocess(image, self.image_size)}, 0)
        if path is not None:
            file = io.BytesIO()
            np.savez(file, allow_pickle=False, **outputs)
            write_atomic(path, file.getvalue())
            _forget_oldest(path.parent)
        return outputs, {f"encoder{name}": value for name, value in times.items()}

    def _read_cache(self, path: Path) -> dict[str, Floats] | None:
        wanted = {spec.name: spec.shape for spec in output_specs(self._signatures[self.encoder])}
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name], np.float32) for name in wanted}
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return arrays if all(arrays[name].shape == shape for name, shape in wanted.items()) else None

    def _run(
        self, model: Path, arrays: Mapping[str, Floats], runs: int
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        signature = self._signatures[model]
        with Scratch() as folder:
            inputs = folder / "inputs.npz"
            save_arrays(inputs, [arrays[entry.name] for entry in signature.inputs])
            job = Job.of(model, signature, folder / "job", [inputs], runs=runs, threads=self.threads)
            outcome = LocalDevice().run_job(self.lane, job, time_limit_s=self.time_limit_s)
            lane = registry.find(self.lane)
            facts = lane.read(outcome.log, outcome.observation)
            files = outcome.output_files()
            seen = outcome.observation
            if not files or seen is None or facts.failure is not None or facts.served is False:
                why = (seen.error if seen else None) or ("time limit" if outcome.timed_out else "see `assay run`")
                raise AssayError(f"{model.name} did not run on {self.lane}: {str(why).splitlines()[0]}")
            found = dict(zip((entry.name for entry in signature.outputs), load_arrays(files[0]), strict=True))
        times = {"_load": seen.load_ms, "": seen.first_run_ms}
        if seen.samples_ms:
            times["_p50"] = float(np.median(seen.samples_ms))
        return found, {name: value for name, value in times.items() if value is not None}


def _check(path: Path, signature: graph.Signature, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    found = ({entry.name for entry in signature.inputs}, {entry.name for entry in signature.outputs})
    if found != (set(inputs), set(outputs)):
        kind = "image encoder" if "pixel_values" in inputs else "mask decoder"
        raise AssayError(
            f"{path} is no SAM 2.1 {kind}: it has inputs {sorted(found[0])} and outputs {sorted(found[1])}",
            fix=f"convert one with `assay convert sam2.1-hiera-tiny-{kind.replace(' ', '-')}`",
        )


def _forget_oldest(folder: Path) -> None:
    kept = sorted(folder.glob("features-*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[_CACHED_IMAGES:]:
        path.unlink(missing_ok=True)
