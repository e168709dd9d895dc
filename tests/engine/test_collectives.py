"""What travels between ranks in one step: the messages, their order and their size."""

import pytest
from training import configure, train

# Elements of the shards of one block and of the rest of the model, over two and over four ranks, padding
# included.
BLOCK = {2: 15 * 2 + 15 * 60 + 3 * 60 + 25 * 60 + 15 * 50, 4: 8 * 2 + 8 * 60 + 2 * 60 + 13 * 60 + 8 * 50}
REST = {2: 31 * 60 + 15, 4: 16 * 60 + 8}
TOTALS = ("all_reduce", "titan_world", 4)


def record(pool, mesh, accumulation=1, remat="none", **options):
    config = configure(mesh, accumulation, remat=remat)
    outcomes = train(pool, config, steps=2, record_collectives=True, **options)
    for outcome in outcomes:
        # The names of groups too: a rank that traced another name would compile another program.
        assert outcome.collectives == outcomes[0].collectives
    return outcomes[0].collectives


def test_one_rank_sends_nothing(pool):
    assert record(pool, (1, 1)) == []


def gather(elements):
    return ("all_gather_into_tensor", "titan_copy", elements)


def scatter(elements, degree):
    return ("reduce_scatter_tensor", "titan_copy", elements * degree)


@pytest.mark.parametrize("shard", [2, 4])
def test_blocks_gather_again_where_their_weights_were_not_kept(pool, shard):
    rest, block = REST[shard], BLOCK[shard]
    forward = [gather(rest), gather(block), gather(block)]
    # Backward begins in the last block, whose weights are still there.
    last, first = [scatter(block, shard)], [gather(block), scatter(block, shard)]
    assert record(pool, (1, shard)) == [*forward, *last, *first, scatter(rest, shard), TOTALS]


@pytest.mark.parametrize("policy", ["selective", "full"])
def test_blocks_that_are_computed_again_gather_again(pool, policy):
    rest, block = REST[2], BLOCK[2]
    forward = [gather(rest), gather(block), gather(block)]
    backward = [gather(block), scatter(block, 2)] * 2
    assert record(pool, (1, 2), remat=policy) == [*forward, *backward, scatter(rest, 2), TOTALS]


def test_replicas_only_sum(pool):
    log = record(pool, (4, 1))
    assert [(name, group) for name, group, _ in log] == [("all_reduce", "titan_replicate")] * 3 + [TOTALS[:2]]


def test_replicas_sum_shards_and_not_whole_gradients(pool):
    log = record(pool, (2, 2))
    expected = [scatter(elements, 2) for elements in (BLOCK[2], BLOCK[2], REST[2])]
    sums = [("all_reduce", "titan_replicate", elements) for elements in (BLOCK[2], BLOCK[2], REST[2])]
    reductions = [pair for both in zip(expected, sums, strict=True) for pair in both]
    assert [message for message in log if "gather" not in message[0]] == [*reductions, TOTALS]


def test_micro_steps_share_the_message_of_the_totals(pool):
    log = record(pool, (1, 2), accumulation=2)
    assert len(log) == 2 * 7 + 1 and log[-1] == TOTALS


def test_blocks_too_small_for_a_message_join_the_rest(pool):
    whole = 2 * BLOCK[2] + REST[2]
    expected = [
        ("all_gather_into_tensor", "titan_copy", whole),
        ("reduce_scatter_tensor", "titan_copy", 2 * whole),
        TOTALS,
    ]
    assert record(pool, (1, 2), smallest_message=None) == expected
    block_bytes = 4 * (2 * 30 + 2 * 30 * 30 + 2 * 6 * 30 + 3 * 50 * 30)
    assert record(pool, (1, 2), smallest_message=block_bytes + 1) == expected
    assert len(record(pool, (1, 2), smallest_message=block_bytes)) == 8
