"""Weights in fewer bits, through the quantizer library."""

from __future__ import annotations

from assay.errors import AssayError

#: Precision to what the card's `quantization` field says of it.
PRECISIONS: dict[str, str] = {
    "fp32": "none (float32 weights)",
    "fp16": "fp16 (float_casting weight quantization of FULLY_CONNECTED, CONV and EMBEDDING; float32 arithmetic)",
    "int8": "int8 (dynamic range: int8 weights per channel, activations quantized at run time)",
}


def quantize(model: bytes, precision: str) -> bytes:
    """The model with weights in another precision.

    Args:
        model: A float32 `.tflite`.
        precision: `fp32` (as it is), `fp16` (float casting, with DEQUANTIZE ops), or `int8` (dynamic range).

    Returns:
        The `.tflite`; the same bytes for the same input.

    Raises:
        AssayError: The precision is unknown.
    """
    if precision not in PRECISIONS:
        raise AssayError(f"precision {precision!r} is unknown", fix=f"choose from: {', '.join(PRECISIONS)}")
    if precision == "fp32":
        return model
    from ai_edge_quantizer import quantizer, recipe

    worker = quantizer.Quantizer(model, recipe.dynamic_wi8_afp32() if precision == "int8" else None)
    if precision == "fp16":
        _cast_to_fp16(worker)
    result = worker.quantize()
    assert result.quantized_model is not None
    return bytes(result.quantized_model)


def _cast_to_fp16(worker: object) -> None:
    from ai_edge_quantizer import qtyping, quantizer
    from ai_edge_quantizer.algorithm_manager import AlgorithmName

    assert isinstance(worker, quantizer.Quantizer)
    worker.update_quantization_recipe(
        regex=".*",
        operation_name=qtyping.TFLOperationName.ALL_SUPPORTED,
        op_config=qtyping.OpQuantizationConfig(
            weight_tensor_config=qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT),
            compute_precision=qtyping.ComputePrecision.FLOAT,
            explicit_dequantize=True,
        ),
        algorithm_key=AlgorithmName.FLOAT_CASTING,
    )
