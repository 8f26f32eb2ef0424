"""What `import ccswarm` offers: plans are checked, runs started and followed, tools called; blocking or awaited. A
program acts for its user: it uses the configurations and plans that the person has used as they are, and its runs are
granted, approved, counted and recorded like those of `ccswarm run`."""
