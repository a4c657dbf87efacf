"""datamix: from a raw math, code and science corpus and agent trajectories to curriculum shards and a looped model.

Importing this package imports nothing heavy; the work lives in schemas, filters, pipelines and trainer.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
