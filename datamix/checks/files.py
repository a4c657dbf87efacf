"""Files against manifests: every output is there with its bytes, nothing else is, and the steps belong together."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from datamix import __version__
from datamix.checks.result import CheckResult
from datamix.folder import RECIPE_NAME, RUN_NAME, describe_run, run_recipe
from datamix.inputs import CACHE_NAME, step_inputs
from datamix.run import ATTEMPTS, TIMINGS_NAME
from datamix.steps import STEPS, step_key
from schemas.errors import DatamixError
from schemas.files import sha256_file
from schemas.lock import LOCK_NAME
from schemas.manifest import Manifest, manifest_path, read_manifest
from schemas.progress import Progress
from schemas.recipe import Recipe

__all__ = ["check_files"]

OF_THE_RUN = {RUN_NAME, RECIPE_NAME, LOCK_NAME, TIMINGS_NAME, CACHE_NAME, "report.html"}


def check_files(run: Path, result: CheckResult, progress: Progress) -> dict[str, Manifest]:
    """Check the files of every finished step; returns the readable manifests by step.

    Reads every byte of the run once.
    """
    manifests = _manifests(run, result)
    owner: dict[str, str] = {}
    entries = [(step, entry) for step, manifest in manifests.items() for entry in manifest.files]
    with progress.task("reading every file", len(entries)) as advance:
        for step, entry in entries:
            if entry.path in owner:
                result.fault(entry.path, f"is in the manifests of both {owner[entry.path]} and {step}")
            owner[entry.path] = step
            _check_one(run, entry.path, entry.bytes, entry.sha256, result)
            advance(1)
    _check_unexpected(run, set(owner), set(manifests), result)
    _check_chain(run, manifests, result)
    result.summary["steps"] = {step.name: "done" if step.name in manifests else "not done" for step in STEPS}
    result.summary["files"] = len(entries)
    result.summary["bytes"] = sum(entry.bytes for _, entry in entries)
    return manifests


def _manifests(run: Path, result: CheckResult) -> dict[str, Manifest]:
    found: dict[str, Manifest] = {}
    for step in STEPS:
        path = manifest_path(run, step.name)
        if not path.exists():
            if (run / ATTEMPTS / f"{step.name}.json").exists():
                result.fault(f"manifests/{step.name}.json", "the step was started and not finished: run it again")
            continue
        try:
            manifest = read_manifest(run, step.name)
        except (KeyError, TypeError):
            manifest = None
        if manifest is None or manifest.step != step.name:
            result.fault(f"manifests/{step.name}.json", "cannot be read as a manifest: run the step again")
        else:
            found[step.name] = manifest
    return found


def _check_one(run: Path, name: str, size: int, digest: str, result: CheckResult) -> None:
    path = run / name
    if not path.is_file():
        result.fault(name, "is missing")
    elif path.stat().st_size != size:
        result.fault(name, f"has {path.stat().st_size} bytes, its manifest says {size}")
    elif sha256_file(path) != digest:
        result.fault(name, "its bytes differ from its manifest's SHA-256")


def _check_unexpected(run: Path, expected: set[str], done: set[str], result: CheckResult) -> None:
    manifests = {f"manifests/{step.name}.json" for step in STEPS}
    notes = [pattern for step in STEPS for pattern in step.notes]
    unclaimed: dict[str, int] = {}  # step without a manifest: files that are its own
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.is_dir() or name in expected or name in OF_THE_RUN or name in manifests:
            continue
        if name.startswith(f"{ATTEMPTS}/") or any(fnmatchcase(name, pattern) for pattern in notes):
            continue
        step = _owner(name)
        if step is None or step in done:
            result.fault(name, "belongs to no finished step")
        else:
            unclaimed[step] = unclaimed.get(step, 0) + 1
    for step, files in unclaimed.items():
        manifest = f"manifests/{step}.json"
        if manifest not in result.damaged():
            result.fault(manifest, f"is missing, and files of this step are there ({files}): run it again")


def _owner(name: str) -> str | None:
    """The step that a path under the run folder belongs to."""
    for step in STEPS:
        if any(name == owned or name.startswith(f"{owned}/") for owned in step.owns):
            return step.name
    return None


def _check_chain(run: Path, manifests: dict[str, Manifest], result: CheckResult) -> None:
    """Each step was made from the manifests that lie here: recompute the keys that need nothing from outside."""
    try:
        recipe = run_recipe(run)
        described = describe_run(run)
    except DatamixError as error:
        result.fault(RECIPE_NAME, str(error))
        return
    if described.get("datamix") != __version__:
        result.summary["note"] = f"made by datamix {described.get('datamix')}: keys not recomputed"
        return
    if recipe.digest() != described["digest"]:
        result.fault(RECIPE_NAME, f"is not the recipe that {RUN_NAME} names")
        return
    digests = {name: manifest.digest() for name, manifest in manifests.items()}
    for step in STEPS:
        if step.name not in manifests or _needs_outside(step.name, recipe):
            continue
        missing = [name for name in step.upstream if name not in digests]
        if missing:
            result.fault(f"manifests/{step.name}.json", f"is done, but {missing[0]} before it is not")
        elif manifests[step.name].key != step_key(step, recipe, digests, []):
            result.fault(f"manifests/{step.name}.json", "was made from other inputs than those here: run it again")


def _needs_outside(step: str, recipe: Recipe) -> bool:
    return step == "read" or bool(step_inputs(step, recipe))
