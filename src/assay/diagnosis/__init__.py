"""Which op or subgraph a lane gets wrong, and the smallest file that shows it.

`assay.diagnose` is its door; `assay.diagnosis.engine.diagnose` takes arrays for inputs and writes no card.
"""
