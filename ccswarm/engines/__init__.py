"""Extension point: engines, which store and execute runs; one file per engine."""
