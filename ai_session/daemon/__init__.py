"""One process per user: wires settings to the gate and serves its socket."""
