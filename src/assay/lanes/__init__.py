"""The ways to run a model: one module a lane, behind one small interface."""
