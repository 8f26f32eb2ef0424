"""HTTP/1.1 read strictly, and who may speak it."""
