"""Commands for people. Each verb is a module that is imported when the verb is used."""
