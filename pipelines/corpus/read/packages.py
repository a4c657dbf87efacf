"""What a running Python has on disk: its standard library and its installed packages, with their licences."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import cast

__all__ = ["STDLIB", "Package", "canonical_name", "find_packages", "license_of"]

STDLIB = "stdlib"  # what a recipe calls the standard library

SKIPPED_FOLDERS = frozenset(
    (
        *("test", "tests", "testing", "_testing", "benchmarks", "bench", "idlelib", "turtledemo", "ensurepip"),
        *("lib2to3", "pydoc_data", "encodings", "msilib", "__pycache__", "site-packages", "dist-packages"),
        *("vendor", "_vendor", "vendored", "_vendored", "_distutils_hack"),
    )
)
"""Test suites (examples of errors, not of code), tables, copies of other packages."""

_CLASSIFIERS = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package. `root` is the folder that the names in `files` start from."""

    name: str
    version: str
    license: str | None
    description: str
    root: str
    files: tuple[str, ...]

    @property
    def label(self) -> str:
        """Name and version: how origins call the package."""
        return f"{self.name}-{self.version}"


def canonical_name(name: str) -> str:
    """A package name in the form in which two spellings of it are equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_packages() -> dict[str, Package]:
    """The standard library and every installed package by canonical name, sorted by it.

    Of two copies on the path the first counts, as for import. Packages whose file list is unknown have no files.
    """
    found: dict[str, Package] = {STDLIB: _standard_library()}
    for distribution in importlib.metadata.distributions():
        metadata = cast(Message, distribution.metadata)
        name = canonical_name(metadata.get("Name") or "")
        if not name or name in found:
            continue
        root = Path(str(distribution.locate_file("")))
        files = sorted(str(PurePosixPath(file)) for file in distribution.files or [] if _is_source(file))
        description = metadata.get("Description") or metadata.get_payload()
        found[name] = Package(
            name=name,
            version=metadata.get("Version") or "0",
            license=license_of(metadata),
            description=description if isinstance(description, str) else "",
            root=str(root),
            files=tuple(files),
        )
    return dict(sorted(found.items()))


def _standard_library() -> Package:
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(file.relative_to(root).as_posix() for file in _python_files(root))
    return Package("python", platform.python_version(), "PSF-2.0", "", str(root), tuple(files))


def _python_files(root: Path) -> Iterator[Path]:
    for entry in root.iterdir():
        if entry.is_dir():
            if not _skipped(entry.name) and not entry.is_symlink():
                yield from _python_files(entry)
        elif entry.suffix == ".py" and _is_source(PurePosixPath(entry.name)):
            yield entry


def _is_source(file: PurePosixPath) -> bool:
    if file.suffix != ".py" or file.is_absolute() or ".." in file.parts:
        return False
    if any(_skipped(part) for part in file.parts[:-1]):
        return False
    return not (file.name.startswith(("test_", "conftest")) or file.name.endswith("_test.py"))


def _skipped(folder: str) -> bool:
    return folder in SKIPPED_FOLDERS or folder.endswith((".dist-info", ".egg-info")) or folder.startswith("config-")


def license_of(metadata: Message) -> str | None:
    """The licence that a package states: License-Expression, a short License field, or its classifiers.

    A License field that holds the licence's whole text is passed over for the classifiers; without any, its first
    line is taken.
    """
    expression = (metadata.get("License-Expression") or "").strip()
    if expression:
        return expression
    stated = (metadata.get("License") or "").strip()
    if stated and "\n" not in stated and len(stated) <= 80:
        return stated
    classifiers = [c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [_CLASSIFIERS.get(c, c) for c in classifiers if c != "OSI Approved"]
    if named:
        return " OR ".join(named)
    return stated.split("\n", 1)[0].strip()[:80] or None
