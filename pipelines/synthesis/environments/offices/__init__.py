"""The office family's material: worlds made from seeds, the documents in them, the kinds of task, the checks."""
