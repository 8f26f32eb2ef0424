"""What `import ccswarm` offers: plans checked, runs begun and followed, tools called; blocking or awaited.

A program is the user's own: it goes by the configurations and plans that a person has used as they are, and what its
runs do is granted, approved, counted and recorded as theirs are that `ccswarm run` begins.
"""
