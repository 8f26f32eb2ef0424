"""Sessions, each a terminal with its shell, from opening to closing; and which caller sees which of them."""
