"""One reader a file: each turns one source format into canonical trajectories."""
