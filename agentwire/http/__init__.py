"""HTTP/1.1 read strictly, and who may use it."""
