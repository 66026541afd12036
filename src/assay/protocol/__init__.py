"""How to measure: warm-up, repeats, quiet gates, acceptance and statistics. Knows no lane."""
