"""What reading a catalog's files shows on stderr: how far it is, and what could not be read."""

import contextlib
import shlex
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SHOWN_FROM = 200
"""Fewer files are read before a bar could be seen."""

_NAMED = 20
"""Problems that are shown; a folder of 100,000 broken files must not hide the answer."""


@contextlib.contextmanager
def reading() -> Generator[Callable[[int, int], None]]:
    """Yield a function that is told (files read, of how many) and shows it on stderr."""
    with contextlib.ExitStack() as shown:
        bar: Progress | None = None

        def advance(done: int, total: int) -> None:
            nonlocal bar
            if total < _SHOWN_FROM:
                return
            if bar is None:
                from assay.cli._output import progress

                bar = shown.enter_context(progress())
                bar.add_task("reading records")
            bar.update(bar.task_ids[0], completed=done, total=total)

        yield advance


def name_unread(problems: Sequence[str], root: Path) -> None:
    """Name what could not be read, the first of many; `root` is the catalog's folder."""
    if not problems:
        return
    from assay.cli._output import err
    from assay.report.tables import safe

    for problem in problems[:_NAMED]:
        err.print(f"[yellow]not read:[/] {safe(problem, 1000)}", soft_wrap=True)
    if len(problems) > _NAMED:
        command = f'assay query "SELECT problem FROM problems" --dir {shlex.quote(str(root))}'
        err.print(f"and {len(problems) - _NAMED} more: {safe(command, 1000)}", soft_wrap=True)
