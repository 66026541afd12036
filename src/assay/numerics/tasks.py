"""What a difference means for the task: masks, scores, boxes, keypoints.

Sources: intersection over union, Jaccard 1912; boundary agreement as the F-measure of boundary pixels matched
within a tolerance, Martin, Fowlkes and Malik, "Learning to detect natural image boundaries", 2004, as used for
masks by Perazzi et al., "A benchmark dataset and evaluation methodology for video object segmentation", 2016;
rank agreement, Spearman 1904, as the correlation of average ranks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError

TASKS: tuple[str, ...] = ("mask", "scores", "boxes", "keypoints")

_MIN_MASK_SIDE = 16


def task_metrics(
    reference: NDArray[Any], output: NDArray[Any], task: str | None, *, threshold: float | None = None
) -> dict[str, float | None]:
    """The task's figures for one output.

    Args:
        reference: The right values.
        output: The lane's, of the same shape.
        task: One of `TASKS`; None gives no figures.
        threshold: For masks, see `binary_iou`; None for 0.5 where all values lie in [0, 1], else 0.

    Returns:
        Name -> value, None where it has no meaning: `mask_iou` and `boundary_f` for masks; `top1_agreement`,
        `top5_agreement` and `rank_correlation` for scores; `box_iou_min` and `box_error_max_px` for boxes
        (last axis: two corners); `keypoint_error_mean_px` and `keypoint_error_max_px` for keypoints (last axis: 2
        or 3 coordinates). Pixels are the units of the output itself.

    Raises:
        AssayError: An unknown task, or shapes that differ.
    """
    if task is None:
        return {}
    if task not in TASKS:
        raise AssayError(f"there is no task {task!r}", fix=f"choose from {', '.join(TASKS)}")
    if reference.shape != output.shape:
        raise AssayError(f"the output has shape {output.shape}, the reference {reference.shape}")
    right, given = reference.astype(np.float64), output.astype(np.float64)
    match task:
        case "mask":
            at = _threshold(right) if threshold is None else threshold
            return {"mask_iou": binary_iou(right, given, at), "boundary_f": boundary_agreement(right, given, at)}
        case "scores":
            return {
                "top1_agreement": top_k_agreement(right, given, 1),
                "top5_agreement": top_k_agreement(right, given, 5),
                "rank_correlation": rank_correlation(right, given),
            }
        case "boxes":
            return box_errors(right, given)
        case _:
            return keypoint_errors(right, given)


def guess_task(name: str, shape: tuple[int, ...]) -> str | None:
    """The task that an output's name and shape suggest; None where nothing does.

    A wrong guess costs a figure that says little: the verdict does not depend on it.
    """
    lower = name.lower()
    sides = sorted(shape)[-2:]
    if any(word in lower for word in ("mask", "segment")) or (
        len(shape) >= 3 and len(sides) == 2 and sides[0] >= _MIN_MASK_SIDE and min(shape[1:]) <= 4
    ):
        return "mask" if len(sides) == 2 and sides[0] >= 2 else None
    last = shape[-1] if shape else 0
    if any(word in lower for word in ("box", "bbox")) and last == 4:
        return "boxes"
    if any(word in lower for word in ("landmark", "keypoint", "joint")) and last in (2, 3):
        return "keypoints"
    if any(word in lower for word in ("score", "prob", "logit", "class", "softmax")) and last >= 2:
        return "scores"
    return None


def _threshold(reference: NDArray[np.float64]) -> float:
    finite = reference[np.isfinite(reference)]
    return 0.5 if finite.size and float(finite.min()) >= 0.0 and float(finite.max()) <= 1.0 else 0.0


def binary_iou(reference: NDArray[Any], output: NDArray[Any], threshold: float = 0.0) -> float | None:
    """|A and B| / |A or B| of the elements above a threshold; None if there are none in either.

    NaN is above nothing.
    """
    a, b = reference > threshold, output > threshold
    union = int(np.count_nonzero(a | b))
    return int(np.count_nonzero(a & b)) / union if union else None


def boundary_agreement(
    reference: NDArray[Any], output: NDArray[Any], threshold: float = 0.0, tolerance: int = 2
) -> float | None:
    """F-measure of mask boundaries, 2 P R / (P + R), a boundary pixel counting if one of the other is near.

    Args:
        reference: Masks with the two image axes the largest two of the shape; other axes are separate masks.
        output: The same shape.
        threshold: Elements above it are inside.
        tolerance: Pixels within which boundaries match, by the larger of the two coordinate distances.

    Returns:
        Between 0 and 1; None if neither has a boundary.
    """
    masks_a, masks_b = _image_masks(reference > threshold), _image_masks(output > threshold)
    near_a = near_b = all_a = all_b = 0
    for a, b in zip(masks_a, masks_b, strict=True):
        edge_a, edge_b = _boundary(a), _boundary(b)
        all_a += int(np.count_nonzero(edge_a))
        all_b += int(np.count_nonzero(edge_b))
        near_a += int(np.count_nonzero(edge_a & _dilated(edge_b, tolerance)))
        near_b += int(np.count_nonzero(edge_b & _dilated(edge_a, tolerance)))
    if all_a == 0 and all_b == 0:
        return None
    if near_a == 0 or near_b == 0:
        return 0.0
    recall, precision = near_a / all_a, near_b / all_b
    return 2 * precision * recall / (precision + recall)


def _image_masks(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask as [N, H, W]."""
    if mask.ndim < 2:
        return mask.reshape(1, 1, -1)
    axes = sorted(int(axis) for axis in np.argsort(mask.shape, kind="stable")[-2:])
    moved = np.moveaxis(mask, axes, (-2, -1))
    return moved.reshape(-1, *moved.shape[-2:])


def _boundary(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Inside pixels with an outside one beside them; the image's border is no boundary."""
    padded = np.pad(mask, 1, mode="edge")
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inner


def _dilated(mask: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """Pixels within `reach` of a set one, square neighbourhood: rows, then columns."""
    for axis in (0, 1):
        grown = mask.copy()
        for step in range(1, reach + 1):
            if step >= mask.shape[axis]:
                break
            low, high = [slice(None)] * 2, [slice(None)] * 2
            low[axis], high[axis] = slice(None, -step), slice(step, None)
            grown[tuple(high)] |= mask[tuple(low)]
            grown[tuple(low)] |= mask[tuple(high)]
        mask = grown
    return mask


def top_k_agreement(reference: NDArray[Any], output: NDArray[Any], k: int) -> float | None:
    """Share of the rows (last axis) whose first k classes hold the reference's best one.

    A row's best class counts as held if the output gives it one of the k highest scores; equal scores are
    ordered by class index on both sides. NaN ranks last. None if rows have one class or fewer than k + 1.
    """
    if reference.ndim == 0 or reference.shape[-1] < max(2, k + 1):
        return None
    right = np.where(np.isnan(reference), -np.inf, reference).reshape(-1, reference.shape[-1])
    given = np.where(np.isnan(output), -np.inf, output).reshape(right.shape)
    if not len(right):
        return None
    best = np.argmax(right, axis=1)
    order = np.argsort(-given, axis=1, kind="stable")[:, :k]
    return float(np.mean((order == best[:, None]).any(axis=1)))


def rank_correlation(reference: NDArray[Any], output: NDArray[Any]) -> float | None:
    """Spearman's rank correlation over all elements; None where either is constant or not finite."""
    from scipy.stats import rankdata

    a, b = reference.reshape(-1), output.reshape(-1)
    if a.size < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    ranks_a, ranks_b = rankdata(a), rankdata(b)
    ranks_a, ranks_b = ranks_a - ranks_a.mean(), ranks_b - ranks_b.mean()
    length = math.sqrt(float((ranks_a**2).sum()) * float((ranks_b**2).sum()))
    if length == 0:
        return None
    return max(-1.0, min(1.0, float((ranks_a * ranks_b).sum()) / length))


def box_errors(reference: NDArray[Any], output: NDArray[Any]) -> dict[str, float | None]:
    """Lowest IoU of a box with its own reference, and the largest error of a coordinate.

    Boxes are two opposite corners along the last axis (x0, y0, x1, y1, or y first: both give the same).
    """
    if reference.ndim == 0 or reference.shape[-1] != 4 or reference.size == 0:
        return {"box_iou_min": None, "box_error_max_px": None}
    a, b = reference.reshape(-1, 4), output.reshape(-1, 4)
    low = np.maximum(np.minimum(a[:, :2], a[:, 2:]), np.minimum(b[:, :2], b[:, 2:]))
    high = np.minimum(np.maximum(a[:, :2], a[:, 2:]), np.maximum(b[:, :2], b[:, 2:]))
    common = np.prod(np.maximum(high - low, 0.0), axis=1)
    union = _area(a) + _area(b) - common
    has_area = union > 0
    iou = np.divide(common, union, out=np.ones_like(common), where=has_area)
    return {
        "box_iou_min": _number(float(iou.min())) if has_area.any() else None,
        "box_error_max_px": _number(float(np.abs(a - b).max())),
    }


def _area(boxes: NDArray[Any]) -> NDArray[Any]:
    return np.prod(np.abs(boxes[:, 2:] - boxes[:, :2]), axis=1)


def keypoint_errors(reference: NDArray[Any], output: NDArray[Any]) -> dict[str, float | None]:
    """Mean and largest Euclidean distance between a keypoint and its reference, in x and y only."""
    if reference.ndim == 0 or reference.shape[-1] not in (2, 3) or reference.size == 0:
        return {"keypoint_error_mean_px": None, "keypoint_error_max_px": None}
    distance = np.sqrt(np.square((reference - output)[..., :2]).sum(axis=-1))
    return {
        "keypoint_error_mean_px": _number(float(distance.mean())),
        "keypoint_error_max_px": _number(float(distance.max())),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
