"""Shards for other trainers: the same rows, masks and boundaries in the files that they read.

    trl       Parquet: input_ids, labels (-100 where not trained), position_ids, seq_lengths; for SFTTrainer with
              packing off and padding_free on, which takes boundaries from seq_lengths
    megatron  Megatron-Bridge packed Parquet (*.idx.parquet): input_ids, loss_mask, seq_start_id
    olmo-core raw arrays of ids (*.npy) and of the label mask beside them, one document a segment

`export_shards` writes them; nothing is packed again or cut.
"""

from pipelines.curriculum.export.write import FORMATS, export_shards

__all__ = ["FORMATS", "export_shards"]
