"""A git clone for each attempt, and the merge of its work. Treats everything an agent wrote as untrusted data."""
