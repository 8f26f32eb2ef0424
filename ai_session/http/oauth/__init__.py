"""Who may use the front: tokens of an external issuer are verified, or tokens are issued here."""
