"""Measures models on lanes and devices, judges what comes out, and writes it down."""
