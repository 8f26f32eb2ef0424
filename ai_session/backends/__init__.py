"""Extension point: backends, which keep terminals; one package per backend."""
