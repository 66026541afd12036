"""From log text to facts: pure functions."""
