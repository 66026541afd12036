"""Draw a command's real terminal output as an SVG picture for the README.

Usage: python scripts/make_pictures.py PICTURE.svg -- COMMAND [ARGUMENT ...]
"""

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def main() -> None:
    """Run the command with colours on, and save what it printed on stdout."""
    separator = sys.argv.index("--")
    picture, command = Path(sys.argv[1]), sys.argv[separator + 1 :]
    result = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, env={**os.environ, "FORCE_COLOR": "1"}
    )
    text = Text.from_ansi(result.stdout)
    width = max((line.cell_len for line in text.split("\n")), default=80) + 1
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(text)
    title = " ".join([Path(command[0]).name, *(Path(each).name for each in command[1:])])
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(console.export_svg(title=title[:100]))


if __name__ == "__main__":
    main()
