"""Seeded inputs, comparison metrics and the verdict on what a lane returned."""
