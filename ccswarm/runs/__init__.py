"""The engine, servers and swarm of a process; and runs: started, resumed, stopped, and their progress."""
