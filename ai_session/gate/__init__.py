"""The one door that every call passes: audit, policy, a person's word, idempotency, masking."""
