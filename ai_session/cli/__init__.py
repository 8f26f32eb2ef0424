"""Commands for people. Each verb's module is imported when the verb is used."""
