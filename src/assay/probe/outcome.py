"""What was seen of one case: the unit of the progress file and the source of a matrix entry."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: `supported` took the node and gave the CPU's numbers; `refused` left it to the CPU; `wrong` took it and gave
#: other numbers; `failed` took it and then could not load or run; `crash` ended the process; `invalid` no
#: lane can load, since the runtime's own kernel refuses it; `unclear` nothing shows what happened.
STATUSES = ("supported", "refused", "wrong", "failed", "crash", "invalid", "unclear")


@dataclass
class Outcome:
    """One case as measured.

    Attributes:
        case: Id of the case.
        op: Its op.
        signature: The signature of its node, as text; None where the model could not be made.
        status: One of `STATUSES`.
        reason: Why it was refused or failed, word for word, tensor names replaced by `<tensor>`; None if
            supported.
        scope: `node`, or `subgraph` where one such node keeps its whole subgraph off the accelerator.
        evidence: Lines of the log, or the API's answer, word for word.
        max_abs_diff: Largest difference from the CPU's result; None if it was not compared.
        reference: What was compared with; None if nothing was.
        date: The day it was measured, ISO.
    """

    case: str
    op: str
    signature: str | None
    status: str
    reason: str | None = None
    scope: str = "node"
    evidence: list[str] = field(default_factory=list[str])
    max_abs_diff: float | None = None
    reference: str | None = None
    date: str = ""

    def to_json(self) -> dict[str, Any]:
        """This outcome as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote."""
        return cls(**data)
