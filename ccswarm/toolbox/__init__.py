"""The only sender of tool calls: each is granted, checked, counted and recorded."""
