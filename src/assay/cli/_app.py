"""The root command: verbs are imported only when called, so that `assay --help` starts fast."""

import errno
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from assay.errors import AssayError
from assay.version import __version__

#: verb -> (module under assay.cli, one line of help). The order is the order of the help page.
VERBS: dict[str, tuple[str, str]] = {
    "run": ("run", "Measure models on lanes of this machine or of other devices; write records and a card."),
    "sweep": ("sweep", "Measure many models in the browser: LiteRT.js on WebAssembly and WebGPU."),
    "browser": ("browser", "Install LiteRT.js; open a page that checks a model you drop on it."),
    "inspect": ("inspect", "Show what is in a model: ops, types, parameters, signatures; draw its graph."),
    "lint": ("lint", "Predict what an accelerator refuses of a model, from measurements, without running it."),
    "probe": ("probe", "Measure which ops a lane takes, refuses or gets wrong; write its support matrix."),
    "card": ("card", "Build cards from records, check them, show them."),
    "show": ("show", "Show whether a model works where, how fast, and its pitfalls."),
    "query": ("query", "Query all records with SQL, or with a ready question."),
    "diff": ("diff", "Compare two dates, runtime versions, devices or catalogs; exit 1 on a regression."),
    "stale": ("stale", "List what was measured on a runtime older than the newest known."),
    "catalog": ("catalog", "Write the index of all models."),
    "schema": ("schema", "Print the JSON Schema of a document."),
    "diagnose": ("diagnose", "Name the op that makes a lane wrong; hand over the smallest file that shows it."),
    "devices": ("devices", "List and check the places where lanes run: this machine, boards, browsers."),
    "lanes": ("lanes", "List the lanes: can each run here, on what, or why not and the fix."),
    "convert": ("convert", "Convert PyTorch to a verified .tflite that accelerators take."),
    "recipes": ("recipes", "List what `assay convert` can convert, and its rewrites."),
    "segment": ("segment", "Tap to segment: SAM 2.1 on an image, encoder once, decoder per tap."),
}


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"assay.cli.{VERBS[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # The base class looks for near misses among loaded commands; ours are not loaded yet.
        self.commands = dict.fromkeys(VERBS)  # type: ignore[assignment]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Does a LiteRT model load, run, stay on the accelerator, give the right numbers, and how fast?",
    epilog="Exit codes: 0 fine, 1 found something, 2 misuse. `assay VERB --help` teaches each verb.",
)


def _print_version(value: bool) -> None:
    if value:
        print(f"assay {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None: ...


def _terminated(signum: int, frame: object) -> None:
    # An exception lets every `finally` run: child processes end, files are whole or not there.
    sys.exit(128 + signum)


def main() -> None:
    """Run the command line; exit 0 fine, 1 found something, 2 misuse, 130 on Ctrl-C, 143 when told to end.

    129 where the terminal is closed.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # `nohup` has a reason.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminated)
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            # It was closed by the caller: nobody reads it.
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        _flushed(app)
    except AssayError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.fix:
            print(f"  fix: {error.fix}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output has gone (`assay ... | head`): not an error of ours.
        os._exit(0)
    except OSError as error:
        # What the system refuses is no fault of ours either: a full disk, a folder that is not ours.
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        if error.errno == errno.ENOSPC:
            fix = f"make room; temporary files go to {tempfile.gettempdir()}, or where TMPDIR says"
            print(f"  fix: {fix}", file=sys.stderr)
        sys.exit(2)


def _flushed(command: Callable[[], None]) -> None:
    """Run a command, which ends by `SystemExit`, and write out all that it printed.

    Raises:
        OSError: What was printed cannot be written; `BrokenPipeError` where nobody reads it.
    """
    try:
        command()
    except SystemExit as ending:
        # Typer ends with 1 where the reader of the output has gone.
        if isinstance(ending.__context__, BrokenPipeError):
            raise ending.__context__ from None
        sys.stdout.flush()
        raise
