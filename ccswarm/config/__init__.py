"""Settings and the files they come from, used only as a person has used them."""
