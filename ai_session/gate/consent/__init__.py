"""A person's consent: who is asked, what is asked, whose answer counts, where it is stored."""
