"""Cutting one parameter into shards."""

import pytest
import torch
from titan_tpu.parallel.layout import Layout

SHAPES = [(8, 3), (7, 3), (5,), (1, 2), (6, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_shards_are_equal_and_join_to_the_whole(shape, degree):
    whole = torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)
    layout = Layout(whole.shape, degree)
    shards = [layout.shard(whole, index) for index in range(degree)]
    assert {shard.shape for shard in shards} == {layout.shard_shape}
    # Each number once, in order, and zeros behind.
    rows = torch.cat(shards)
    assert torch.equal(rows[: len(whole)], whole)
    assert not rows[len(whole) :].any()
    assert len(rows) == len(whole) + layout.padding
    assert layout.padding < degree
    assert torch.equal(layout.split(whole), torch.stack([shard.flatten() for shard in shards]))
    assert torch.equal(layout.join(layout.split(whole)), whole)


def test_a_shard_does_not_keep_the_whole_alive():
    whole = torch.ones(8, 2)
    shard = Layout(whole.shape, 2).shard(whole, 0)
    assert shard.untyped_storage().nbytes() == whole.untyped_storage().nbytes() // 2
