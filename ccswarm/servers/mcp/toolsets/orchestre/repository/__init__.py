"""What a repository holds: languages, manifests, history."""
