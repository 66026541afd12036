import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator as On
model = CompiledModel.from_file("minimized.tflite", hardware_accel=On.GPU | On.CPU)
names, ins, outs = model.get_signature_by_index(0), model.create_input_buffers(0), model.create_output_buffers(0)
for run in ('',):
    [buffer.write(x) for buffer, x in zip(ins, map(np.load(f"inputs{run}.npz").get, names["inputs"]))]
    model.run_by_index(0, ins, outs)
    for buffer, y in zip(outs, map(np.load(f"expected{run}.npz").get, names["outputs"])):
        print("max abs difference", abs(buffer.read(y.size, y.dtype.type).reshape(y.shape) - y.astype("d")).max())
