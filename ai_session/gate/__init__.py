"""The gate that every call passes: audit, policy, consent, idempotency, redaction."""
