"""Cutting one parameter into shards."""

import pytest
import torch
from titan_tpu.parallel.layout import Layout

SHAPES = [(8, 3), (7, 3), (5,), (1, 2), (6, 2, 2), (3, 5, 2)]


def shards_of(layout: Layout, whole: torch.Tensor) -> list[torch.Tensor]:
    """Of every part in turn."""
    rows = whole.view(-1, whole.shape[-1] if whole.dim() > 1 else 1)
    return [
        layout.shard(rows[slice(*layout.own_rows(part, index)), layout.own_columns(part)])
        for part in range(layout.parts)
        for index in range(layout.degree)
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_shards_are_equal_and_join_to_the_whole(shape, degree):
    whole = torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)
    layout = Layout(whole.shape, degree)
    shards = shards_of(layout, whole)
    assert {shard.shape for shard in shards} == {layout.shard_shape}
    # Each number once, in order, and zeros behind.
    flat = torch.cat([shard.flatten() for shard in shards])
    assert torch.equal(flat[: whole.numel()], whole.flatten())
    assert not flat[whole.numel() :].any()
    assert len(flat) == whole.numel() + layout.padding * layout.width
    assert layout.padding < degree
    assert torch.equal(layout.split(whole), torch.stack([shard.flatten() for shard in shards]))
    assert torch.equal(layout.join(layout.split(whole)), whole)


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize(("shape", "parts", "dim"), [((6, 5), 3, 0), ((5, 6), 3, -1), ((4, 3, 2), 2, 0)])
def test_parts_are_cut_on_their_own(shape, parts, dim, degree):
    whole = torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)
    layout = Layout(whole.shape, degree, parts, dim)
    shards = torch.stack([shard.flatten() for shard in shards_of(layout, whole)]).view(parts, degree, -1)
    for expected, own in zip(whole.chunk(parts, dim), shards, strict=True):
        assert layout.part_shape == expected.shape
        assert torch.equal(layout.split(expected), own)
        assert torch.equal(layout.join(own), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_stay_vectors_and_matrices_matrices(shape):
    # An optimizer decays matrices only, and sees nothing but shards.
    assert (len(Layout(torch.Size(shape), 2).shard_shape) == 1) == (len(shape) == 1)


def test_stacked_experts_are_cut_through_their_rows():
    # 128 experts over 2048 ranks: cut by expert, 15 of 16 ranks would hold nothing.
    layout = Layout(torch.Size((128, 3072, 4096)), 2048)
    assert layout.padding == 0 and layout.shard_shape == (192, 4096)


def test_a_shard_does_not_keep_the_whole_alive():
    whole = torch.ones(8, 2)
    shard = shards_of(Layout(whole.shape, 2), whole)[0]
    assert shard.untyped_storage().nbytes() == whole.untyped_storage().nbytes() // 2
