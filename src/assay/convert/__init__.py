"""Recipes from PyTorch to .tflite, with the rewrites that keep a graph on the accelerator."""
