"""Task families for other frameworks' reinforcement learning: TRL (`trl.py`) and verifiers (`verifiers.py`).

Neither framework is a requirement of datamix; each module imports its own only where it must.
"""
