"""A progress bar for reading a catalog's files."""

import contextlib
from collections.abc import Callable, Generator


@contextlib.contextmanager
def reading() -> Generator[Callable[[int, int], None]]:
    """Yield a function that is told (files read, of how many) and shows it on stderr."""
    from assay.cli._output import progress

    with progress() as bar:
        task = bar.add_task("reading records", total=None, visible=False)

        def advance(done: int, total: int) -> None:
            # A handful of files is read before a bar could be seen.
            bar.update(task, completed=done, total=total, visible=total > 200)

        yield advance
