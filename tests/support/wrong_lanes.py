"""Lanes that return wrong numbers without a word, for the verdict to call. Reached as `wrong_lanes:NAME`."""

from typing import Any

from assay.lanes.cpu import XnnpackLane
from assay.lanes.job import Job
from assay.lanes.native import Array, Invoke


class _Wrong(XnnpackLane):
    summary = "returns wrong numbers"
    precision = "fp16"

    def load(self, job: Job) -> Invoke:
        right = super().load(job)
        kept: list[list[Array]] = []

        def invoke(arrays: list[Array]) -> list[Array]:
            outputs = right(arrays)
            kept.append(outputs)
            return self.spoil(outputs, kept)

        return invoke

    def spoil(self, outputs: list[Array], kept: list[list[Array]]) -> Any:
        raise NotImplementedError


class Scaled(_Wrong):
    name = "scaled"

    def spoil(self, outputs: list[Array], kept: list[list[Array]]) -> list[Array]:
        return [output * output.dtype.type(1.05) for output in outputs]


class Half(_Wrong):
    """Rounds its outputs as fp16 storage would: right, as far as fp16 goes."""

    name = "half"

    def spoil(self, outputs: list[Array], kept: list[list[Array]]) -> list[Array]:
        return [output.astype("float16").astype(output.dtype) for output in outputs]


class FirstOnly(_Wrong):
    name = "first_only"

    def spoil(self, outputs: list[Array], kept: list[list[Array]]) -> list[Array]:
        return outputs if len(kept) == 1 else [output * 0 for output in outputs]


class OneBehind(_Wrong):
    name = "one_behind"

    def spoil(self, outputs: list[Array], kept: list[list[Array]]) -> list[Array]:
        return kept[-2] if len(kept) > 1 else [output * 0 for output in outputs]
