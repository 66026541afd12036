"""The error of everything that reads or edits a graph."""

from assay.errors import AssayError


class GraphError(AssayError):
    """A file is not a usable model, or an edit would make one that is not."""
