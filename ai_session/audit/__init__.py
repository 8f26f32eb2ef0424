"""The audit log: a begin and an end record for each call, chained and signed; its verification and export."""
