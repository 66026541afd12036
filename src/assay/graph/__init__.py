"""A .tflite file as a graph of plain objects: read, lint, cut, tap, write."""
