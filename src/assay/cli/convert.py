"""`assay convert`: PyTorch to a verified .tflite."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.conversion import ConvertedModel
    from assay.conversion.verify import Checked

app = typer.Typer(add_completion=False)


def _options(values: list[str]) -> dict[str, str]:
    from assay.errors import AssayError

    options: dict[str, str] = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals or not name:
            raise AssayError(f"--set {value!r} is not understood", fix="write --set name=value")
        options[name] = setting
    return options


@app.command(
    epilog="Example: assay convert sam2.1-hiera-tiny-mask-decoder --checkpoint sam2.1_hiera_tiny.pt"
    " --precision fp16 --out decoder.tflite"
)
def convert(
    recipe: Annotated[
        str,
        typer.Argument(help="A recipe (see `assay recipes`), or file.py:function of yours, which is then run."),
    ],
    out: Annotated[Path, typer.Option(help="The .tflite to write.", show_default=False)],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Weights: a transformers folder (safetensors) or Meta's .pt file.")
    ] = None,
    random_weights: Annotated[
        int | None, typer.Option(metavar="SEED", help="Random weights; the model is then marked as an example.")
    ] = None,
    precision: Annotated[str, typer.Option(help="Weights: fp32, fp16 or int8.")] = "fp32",
    variant: Annotated[str | None, typer.Option(help="Variant of the recipe. Default: its first.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Option of the recipe; again for more.")
    ] = None,
    rewrite: Annotated[
        list[str] | None, typer.Option(help="Apply this rewrite besides the recipe's; again for more.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave out this rewrite of the recipe.")] = None,
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Convert, lint, apply the rewrites that the findings name, convert again."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Convert a PyTorch model to a .tflite that accelerators take, and verify it before it is written.

    Every output is compared with PyTorch's on three sets of inputs; a model that differs is not written.
    Beside MODEL.tflite goes MODEL.meta.yaml with the command, the versions, sha256 and size: give it to
    `assay run --meta`. A function of yours returns (module, example inputs), or an assay.Plan.

    Exit code: 0 written, 1 the converted model differs from PyTorch, 2 something is missing or cannot convert.
    """
    import os

    from rich.console import Console

    import assay
    from assay.cli._output import err, print_json

    # The converter's own output is kept off descriptor 2 while it works; ours goes to a copy of it.
    with os.fdopen(os.dup(2), "w") as copy:
        console = Console(file=copy, force_terminal=err.is_terminal, highlight=False)
        with console.status("starting") as status:
            try:
                made = assay.convert(
                    recipe,
                    out,
                    checkpoint=checkpoint,
                    seed=random_weights,
                    variant=variant,
                    precision=precision,
                    options=_options(setting or []),
                    rewrites=rewrite or [],
                    without=without or [],
                    auto=auto,
                    command=("assay", *sys.argv[1:]),
                    notify=lambda stage: status.update(f"{stage} ..."),
                )
            except assay.ConversionDiffers as error:
                status.stop()
                _show_checks(error.checks)
                err.print(f"[red]not written:[/red] {error.message}", soft_wrap=True)
                raise typer.Exit(1) from error
    if as_json:
        print_json(made.document())
    else:
        _show(made)


def _show(made: "ConvertedModel") -> None:
    from assay.cli._output import out

    mark = " [yellow](example: random weights)[/yellow]" if made.example else ""
    out.print(f"[bold]{made.path}[/bold]{mark}", soft_wrap=True)
    out.print(f"  sha256   {made.sha256}", soft_wrap=True)
    out.print(f"  size     {made.size_bytes / 1e6:.3f} MB, {made.precision} weights")
    ops = ", ".join(f"{count} {op}" for op, count in made.ops.items())
    out.print(f"  nodes    {made.nodes}: {ops}", soft_wrap=True)
    for name, rules in made.findings.items():
        out.print(f"  found    {', '.join(rules)}: {name}", soft_wrap=True)
    done = ", ".join(f"{name} ({count})" for name, count in made.rewrites.items())
    out.print(f"  rewrites {done or 'none'}", soft_wrap=True)
    took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in made.seconds.items())
    out.print(
        f"  took     {sum(made.seconds.values()):.1f} s ({took}), peak {made.peak_mb:.0f} MiB", soft_wrap=True
    )
    _show_checks(made.checks)
    beside = ", ".join(path.name for path in (made.meta, *made.sidecars))
    out.print(f"  beside it: {beside}", soft_wrap=True)


def _show_checks(checks: "Sequence[Checked]") -> None:
    from rich.table import Table

    from assay.cli._output import out

    table = Table(title="Against PyTorch", title_justify="left")
    for column in ("inputs", "output", "max abs diff", "of max abs", "correlation", "scores"):
        table.add_column(
            column, justify="right" if column in ("max abs diff", "of max abs", "correlation") else "left"
        )
    for check in checks:
        scores = ", ".join(f"{name} {value:.6f}" for name, value in check.scores.items())
        for index, one in enumerate(check.outputs):
            table.add_row(
                f"seed {check.seed}" if index == 0 else "",
                one.name,
                _figure(one.max_abs_diff),
                _figure(one.reference_max_abs),
                "" if one.correlation is None else f"{one.correlation:.9f}",
                scores if index == 0 else "",
            )
    out.print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
