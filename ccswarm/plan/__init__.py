"""Checks of plans: what steps need, refer to and expect, and which agents may delegate work to which."""
