"""Tap to segment: SAM 2.1 on an image, the encoder once, the decoder for each tap."""
