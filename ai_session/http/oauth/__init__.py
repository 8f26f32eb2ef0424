"""Who may use the front: tokens of others checked, or issued here."""
