"""The contents of a repository: languages, manifests, history."""
