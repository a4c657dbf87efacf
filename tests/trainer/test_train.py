from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.progress import Quiet
from trainer.train import train


def test_trains_all_stages_and_lays_the_final_checkpoint(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    summary = train(make_recipe(), tmp_path, Quiet())
    print(summary)
    assert (tmp_path / "train/checkpoints/final/model.safetensors").is_file()
