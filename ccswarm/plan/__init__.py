"""Is a plan sound: what steps need, refer to and expect; who may hand on what."""
