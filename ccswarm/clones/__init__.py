"""A git clone for each attempt, and the way back of its work. Reads what an agent wrote without being led by it."""
