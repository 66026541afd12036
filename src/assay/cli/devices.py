"""`assay devices`: the places where lanes run."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


@app.callback(invoke_without_command=True, epilog="Example: assay devices check pi")
def devices(context: typer.Context, as_json: AsJson = False) -> None:
    """List the devices that you named in devices.yaml, and this machine; check them.

    The file has one device a line, for example `phone: cdp://localhost:9222`. It is the file that ASSAY_DEVICES
    names, else devices.yaml in the current folder, else ~/.config/assay/devices.yaml. `--on` takes a name or an
    address.

    Exit code: 0 fine, 2 the file cannot be read.
    """
    if context.invoked_subcommand is not None:
        return
    from assay.cli._output import out, print_json
    from assay.devices import registry
    from assay.report import devices_table

    listed = {registry.DEFAULT: registry.DEFAULT} | {
        name: entry.address for name, entry in registry.named().items()
    }
    if as_json:
        print_json([{"name": name, "address": address} for name, address in listed.items()])
    else:
        devices_table.show_list(listed, str(registry.devices_file() or ""), out)


@app.command(epilog="Example: assay devices check local pi")
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Names or addresses. Default: all listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Look only at what is installed; run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reach each device, say what it is and how it is now, and try each lane with a model of one op.

    Exit code: 0 every device was reached and no lane failed, 1 one was not or did, 2 there is no such device.
    """
    from assay.cli._output import out, print_json, progress
    from assay.devices import registry
    from assay.devices.check import check_device
    from assay.report import devices_table

    texts = names or [registry.DEFAULT, *registry.named()]
    found = [registry.find(text) for text in texts]
    checks = []
    with progress() as bar:
        task = bar.add_task("looking", total=None)
        for text, device in zip(texts, found, strict=True):
            tell = f"{text}: {{}}"
            checks.append(
                check_device(
                    device,
                    label=text,
                    run=not quick,
                    notify=lambda lane, tell=tell: bar.update(task, description=tell.format(lane)),
                )
            )
    if as_json:
        print_json([each.to_dict() for each in checks])
    else:
        for each in checks:
            devices_table.show(each, out)
    if any(each.failed for each in checks):
        raise typer.Exit(1)
