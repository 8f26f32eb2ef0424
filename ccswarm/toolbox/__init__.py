"""The only sender of calls: granted, checked, counted, recorded."""
