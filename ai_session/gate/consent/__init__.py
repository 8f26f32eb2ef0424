"""A person's word: whom to ask, what is asked, whose answer counts, where it is kept."""
