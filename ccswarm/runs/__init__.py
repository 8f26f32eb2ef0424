"""Everything that works with runs, opened and closed; runs begun, gone on with and stopped; how far they are."""
