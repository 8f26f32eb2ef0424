"""A begin and an end record for each call, chained and signed: written, verified, exported."""
