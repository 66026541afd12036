"""The one exception for what a user can put right: the command line shows it without a traceback."""


class AssayError(Exception):
    """A clear, one-line error: what is wrong, with which file, and how to put it right.

    Args:
        message: Names the file or value and the cause.
        fix: What the user can do about it, or an empty string.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message
