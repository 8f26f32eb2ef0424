"""May this be done: rules, modes, command lines read as words, the administrator's file."""
