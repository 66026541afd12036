"""Where in the source model a node came from: converters put the module's path into tensor names."""

from __future__ import annotations

import re

# litert-torch: "package.Class/package.Class_attribute/torch.nn.modules.linear.Linear_q;...", from the outside in.
_TORCH_PART = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?P<name>[A-Z][A-Za-z0-9]*)(?:_(?P<attribute>\w+))?$")
# TensorFlow: "model/block_1/conv/BiasAdd;model/block_1/conv/Conv2D"; the last part is the op.
_TENSORFLOW = re.compile(r"^[A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]+)+$")


def module_path(name: str) -> str:
    """The dotted path of the module that made a tensor, or an empty string if its name does not say.

    Examples:
        >>> module_path("model/block_1/conv/BiasAdd;model/block_1/conv/Conv2D")
        'model.block_1.conv'
        >>> module_path("app.Net/app.Attention_0/torch.nn.modules.linear.Linear_q;;app.Net/app.Attention_0")
        'Net.0.q'
        >>> module_path("arith.constant12")
        ''
    """
    first = next((part for part in name.split(";") if part), "")
    parts = first.split("/")
    matches = [_TORCH_PART.match(part) for part in parts]
    if all(matches):
        return ".".join(match["attribute"] or match["name"] for match in matches if match is not None)
    if _TENSORFLOW.match(first):
        return ".".join(parts[:-1])
    return ""
