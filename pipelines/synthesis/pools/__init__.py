"""Pools: the material that a family's tasks are drawn from, made once a run from the kept corpus."""
