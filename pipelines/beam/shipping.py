"""How datamix reaches the workers of a distant runner: as a source distribution built from this installation."""

from __future__ import annotations

import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions, WorkerOptions

__all__ = ["PACKAGES", "build_package", "ship_package"]

PACKAGES = ("schemas", "filters", "pipelines", "datamix", "trainer")
WORKER_REQUIREMENTS = (
    "click", "datasketch", "fasttext-community", "jsonlines", "numba", "numpy", "orjson", "polars", "pyarrow",
    "pydantic", "PyYAML", "regex", "tokenizers", "xxhash", "zstandard",
)  # fmt: skip
"""What the corpus transforms import on a worker; torch and datatrove are not needed there."""


def build_package(folder: Path) -> Path:
    """Write a project of the installed packages with a setup.py into `folder`; returns the setup.py.

    Versions of what the workers need are pinned to those of this installation, so both sides decide alike.
    """
    root = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    needed = [f"{name}=={metadata.version(name)}" for name in WORKER_REQUIREMENTS]
    (folder / "README").write_text("datamix, for the workers of a Beam job.\n", encoding="utf-8")
    setup = folder / "setup.py"
    setup.write_text(
        "from setuptools import find_namespace_packages, setup\n"
        f"setup(name='datamix-worker', version={metadata.version('datamix')!r},\n"
        f"      packages=find_namespace_packages(include={[f'{name}*' for name in PACKAGES]!r}),\n"
        f"      package_data={{'': ['*']}}, install_requires={needed!r})\n",
        encoding="utf-8",
    )
    return setup


def ship_package(options: PipelineOptions) -> None:
    """Have the runner install this code on its workers, unless the flags say how, or name an image that has it."""
    setup = options.view_as(SetupOptions)
    worker = options.view_as(WorkerOptions)
    if setup.setup_file or setup.extra_packages or worker.sdk_container_image:
        return
    folder = Path(tempfile.mkdtemp(prefix="datamix-package-"))
    setup.setup_file = str(build_package(folder))
