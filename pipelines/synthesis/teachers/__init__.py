"""Scripted teachers: `scripted` has what all share and the table of families, each family's plans are a file."""
