"""`python -m pipelines.beam`: see `pipelines.beam.run`."""

import sys

from pipelines.beam.run import main

if __name__ == "__main__":
    sys.exit(main())
