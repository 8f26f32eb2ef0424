"""What the processes of a box may take together: cgroups, or counted."""
