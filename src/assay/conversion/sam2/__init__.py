"""Segment Anything 2.1: weights, prompts, images, and "tap to segment" on the converted models."""
