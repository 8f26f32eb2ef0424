"""Whether a call is allowed: rules, modes, command lines parsed into words, the administrator's file."""
