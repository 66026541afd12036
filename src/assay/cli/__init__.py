"""The command line: one thin file a verb. Parse, call, print; no logic."""

from assay.cli._app import main

__all__ = ["main"]
