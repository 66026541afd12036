"""`assay segment`: tap to segment with SAM 2.1."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)


def _numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    from assay.errors import AssayError

    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != count:
        example = "X,Y" if count == 2 else "X1,Y1,X2,Y2"
        raise AssayError(
            f"{option} {text!r} is not understood", fix=f"write {option} {example} in pixels of the image"
        )
    return numbers


@app.command(
    epilog="Example: assay segment cat.jpg --point 420,310 --encoder encoder.tflite --decoder decoder.tflite"
    " --out cat-overlay.png"
)
def segment(
    image: Annotated[Path, typer.Argument(help="The image: any format that Pillow reads.", show_default=False)],
    encoder: Annotated[Path, typer.Option(help="The image encoder's .tflite.", envvar="ASSAY_SAM2_ENCODER")],
    decoder: Annotated[
        Path,
        typer.Option(help="The mask decoder's .tflite, its .prompt.npz beside it.", envvar="ASSAY_SAM2_DECODER"),
    ],
    point: Annotated[
        list[str] | None,
        typer.Option(metavar="X,Y", help="A tap, in pixels; again for more points of one object."),
    ] = None,
    label: Annotated[
        list[int] | None,
        typer.Option(min=0, max=1, help="1: on the object, 0: beside it; one a point. Default 1."),
    ] = None,
    box: Annotated[str | None, typer.Option(metavar="X1,Y1,X2,Y2", help="A box round the object.")] = None,
    lane: Annotated[str, typer.Option(help="Lane to run on; see `assay lanes`.")] = "cpu_xnnpack",
    out: Annotated[Path, typer.Option(help="The overlay to write; masks go beside it.")] = Path("overlay.png"),
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    runs: Annotated[int, typer.Option(min=0, help="Time the decoder this often besides.")] = 0,
    cache: Annotated[
        bool, typer.Option(help="Keep the encoder's features of an image in OUT's folder, for the next tap.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Segment the object under a tap: SAM 2.1, the encoder once per image, then the decoder per tap.

    Convert the models first with `assay convert`. Writes the overlay, and the three masks as OUT.mask-1.png to
    -3.png (255 on the object). The best mask is the one that the decoder gives the highest IoU.

    Exit code: 0, or 2 where a file, an option or the lane cannot be used.
    """
    from assay.cli._output import err, print_json
    from assay.cli._output import out as stdout
    from assay.errors import AssayError
    from assay.segment import images
    from assay.segment.segmenter import Prompt, Segmenter

    if out.suffix.lower() != ".png":
        raise AssayError(f"{out} does not end in .png", fix="masks and overlays are PNG files")
    points = [_numbers(text, 2, "--point") for text in point or []]
    labels = label or [1] * len(points)
    corners = None if box is None else _numbers(box, 4, "--box")
    prompt = Prompt(
        points=[(x, y) for x, y in points],
        labels=labels,
        box=None if corners is None else (corners[0], corners[1], corners[2], corners[3]),
    )
    pixels = images.read_image(image)
    segmenter = Segmenter(
        encoder, decoder, lane=lane, threads=threads, cache=out.parent / ".assay-segment" if cache else None
    )
    with err.status(f"{image.name} on {lane} ..."):
        result = segmenter.segment(pixels, prompt, runs)
    paths = images.write_result(out, pixels, result.masks, result.best, prompt.points, prompt.labels, prompt.box)
    document: dict[str, Any] = {
        "image": str(image),
        "lane": lane,
        "overlay": str(paths[0]),
        "masks": [str(path) for path in paths[1:]],
        "best": result.best + 1,
        "iou": [round(float(value), 6) for value in result.iou],
        "area_share": [round(float(mask.mean()), 6) for mask in result.masks],
        "encoder_cached": result.cached,
        "times_ms": {name: round(value, 3) for name, value in result.times_ms.items()},
    }
    if as_json:
        print_json(document)
        return
    stdout.print(f"{paths[0]} and {len(paths) - 1} masks", soft_wrap=True)
    for index, (iou, share) in enumerate(zip(document["iou"], document["area_share"], strict=True)):
        best = "  best" if index == result.best else ""
        stdout.print(f"  mask {index + 1}: predicted IoU {iou:.3f}, {share:.1%} of the image{best}")
    if result.cached:
        stdout.print("  encoder: features of this image were kept, not run")
    for name, value in result.times_ms.items():
        stdout.print(f"  {name.replace('_', ' ')}: {value:.1f} ms")
