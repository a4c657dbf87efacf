"""datatrove under Slurm: the sbatch script on record, and a map through a queue of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import open_engine
from pipelines.trove import slurm
from pipelines.trove.slurm import SlurmSettings, slurm_executor
from pipelines.trove.steps import FilterQuality, ReadBatches
from schemas.errors import DatamixError, InputError, UsageError

TASKS_MODULE = """
import os
from schemas.errors import InputError

def square(n):
    return {"n": n * n, "omp": os.environ["OMP_NUM_THREADS"], "array": os.environ["SLURM_ARRAY_TASK_ID"]}

def fail(n):
    if n in (3, 5):
        raise InputError("bad", path="a.jsonl", line=n)
    return {}

def leave(n):
    os._exit(9)
"""
SBATCH = """#!/bin/bash
# A queue of this machine: every task of the array runs here, one after the other; the script is kept.
script="${@: -1}"
number=$(( $(ls "$QUEUE" | wc -l) + 1 ))
cp "$script" "$QUEUE/$number.slurm"
echo "Submitted batch job $number"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
case "$(cat "$script")" in *merge_stats*) exit 0;; esac
for task in $(seq 0 "$last"); do
    SLURM_JOB_ID=$number SLURM_ARRAY_TASK_ID=$task bash "$script" > "$QUEUE/$number-$task.log" 2>&1
done
exit 0
"""
SCRIPT = """#!/bin/bash
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=3G
#SBATCH --nodes=1
#SBATCH --partition=cpu
#SBATCH --job-name=corpus
#SBATCH --time=10:00:00
#SBATCH --output=FOLDER/slurm_logs/%A_%a.out
#SBATCH --error=FOLDER/slurm_logs/%A_%a.out
#SBATCH --array=0-63%16
#SBATCH --account=math
#SBATCH --requeue
echo "Starting data processing job corpus"
source /shared/venv/bin/activate; LIMITS
set -xe
export PYTHONUNBUFFERED=TRUE
srun -l launch_pickled_pipeline FOLDER/executor.pik
"""


def test_the_script_for_sbatch_is_the_one_on_record(tmp_path: Path) -> None:
    settings = SlurmSettings(
        "cpu",
        "10:00:00",
        cpus_per_task=2,
        mem_per_cpu_gb=2.5,
        env_command="source /shared/venv/bin/activate",
        sbatch_args={"account": "math"},
    )
    steps = [ReadBatches("/shared/data"), FilterQuality(["gopher"])]
    executor = slurm_executor(steps, settings, folder=tmp_path, tasks=64, workers=16, name="corpus")
    script = executor.get_launch_file_contents(
        executor.get_sbatch_args(64), f"srun -l launch_pickled_pipeline {tmp_path}/executor.pik"
    )
    limits = "; ".join(f"export {name}=1" for name in slurm.THREAD_LIMITS)
    assert script.strip() == SCRIPT.replace("FOLDER", str(tmp_path)).replace("LIMITS", limits).strip()
    assert "export OMP_NUM_THREADS=1" in script
    assert executor.pipeline == steps and executor.world_size == 64


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sbatch, squeue, scancel, srun, scontrol that work on this machine alone; gives the folder of jobs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "queue").mkdir()
    programs = {
        "sbatch": SBATCH,
        "srun": '#!/bin/bash\nwhile [[ "$1" == -* ]]; do [[ "$1" == -n ]] && shift; shift; done\nexec "$@"\n',
        "squeue": "#!/bin/bash\n",
        "scancel": '#!/bin/bash\necho "$@" > "$QUEUE/cancelled"\n',
        "scontrol": "#!/bin/bash\nhostname\n",
    }
    for name, text in programs.items():
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("QUEUE", str(tmp_path / "queue"))
    monkeypatch.setenv("SLURM_NODELIST", "here")
    monkeypatch.setenv("PATH", f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin")
    (tmp_path / "slurm_task_functions.py").write_text(TASKS_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    monkeypatch.setattr(slurm, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(slurm, "_SETTLE_SECONDS", 0.2)
    return tmp_path / "queue"


OPTIONS = ("--executor", "slurm", "--partition", "cpu", "--time", "1:00:00", "--mem-per-cpu-gb", "1", "--work-folder")


def test_results_and_the_first_error_come_back_from_the_queue(queue: Path, tmp_path: Path) -> None:
    import slurm_task_functions as functions  # type: ignore[import-not-found]

    engine: Any = open_engine("datatrove", 1, (*OPTIONS, str(tmp_path / "work"), "--sbatch", "account=math"))
    results = engine.map(functions.square, list(range(3)), label="read: sort")
    assert [r["n"] for r in results] == [0, 1, 4]
    assert {r["omp"] for r in results} == {"1"}
    assert {r["array"] for r in results} == {"0", "1", "2"}
    script = (queue / "1.slurm").read_text(encoding="utf-8")
    assert "#SBATCH --array=0-2%1" in script and "#SBATCH --account=math" in script
    assert "#SBATCH --job-name=datamix-read" in script
    with pytest.raises(InputError, match=r"^a\.jsonl:3: bad$"):
        engine.map(functions.fail, [3, 5], label="fail")
    assert list((tmp_path / "work").iterdir()) == [], "what a map leaves is removed with it"
    with pytest.raises(DatamixError, match=r"leave: task 0 left no result: its worker is gone") as caught:
        engine.map(functions.leave, [0], label="leave")
    (note,) = caught.value.__notes__
    assert Path(note.removeprefix("logs of the job: ")).is_dir()
    sys.modules.pop("slurm_task_functions", None)


def test_wrong_settings_are_wrong_usage(queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = str(tmp_path / "work")
    with pytest.raises(UsageError, match="needs --partition and --time"):
        open_engine("datatrove", 1, ("--executor", "slurm", "--work-folder", work))
    with pytest.raises(UsageError, match="--sbatch 'account' is not NAME=VALUE"):
        open_engine("datatrove", 1, (*OPTIONS, work, "--sbatch", "account"))
    with pytest.raises(UsageError, match=r"options --executor flux .* are not understood. Use --executor ray .* slurm"):
        open_engine("datatrove", 1, ("--executor", "flux", "--work-folder", work))
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with pytest.raises(UsageError, match="itself a task of a job array"):
        open_engine("datatrove", 1, (*OPTIONS, work))
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="there is no sbatch here"):
        open_engine("datatrove", 1, (*OPTIONS, work))
