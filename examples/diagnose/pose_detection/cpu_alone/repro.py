import numpy as np
from ai_edge_litert.interpreter import Interpreter
model = Interpreter("minimized.tflite", num_threads=2)
model.allocate_tensors()
for run in ('',):
    x, y = np.load(f"inputs{run}.npz"), np.load(f"expected{run}.npz")
    [model.set_tensor(detail["index"], x[detail["name"]]) for detail in model.get_input_details()]
    model.invoke()
    for detail in model.get_output_details():
        print("max abs difference", abs(model.get_tensor(detail["index"]) - y[detail["name"]].astype(float)).max())
