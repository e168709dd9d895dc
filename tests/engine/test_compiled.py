"""The compiled step: one program, the same on all ranks, with the numbers of the eager one."""

import os

import pytest
import torch
from titan_tpu import compiled
from titan_tpu.config import ModelConfig
from titan_tpu.models import build_model
from training import FAMILIES, configure, global_batches, losses, train

MESHES = [
    {"replicate": 2, "shard": 2},
    {"replicate": 2, "shard": 2, "expert": 2},
    {"shard": 4, "expert": 4},
    {"context": 2, "tensor": 2, "expert": 4},
    {"shard": 2, "tensor": 2},
]
BALANCED = {"load_balancing": "auxiliary-loss"}


@pytest.fixture(autouse=True, scope="module")
def fresh_cache(tmp_path_factory):
    """What an earlier version has compiled must not make a test pass."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))


@pytest.mark.parametrize("remat", ["none", "selective", "full"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_all_ranks_trace_the_same_bytes(pool, mesh, remat):
    config = configure(mesh, model=FAMILIES["qwen3-moe"], experts=BALANCED, document_end=7, remat=remat)
    # Where the bytes are the same on four ranks, they are on more.
    graphs = [outcome.graph for outcome in train(pool, config, 1, fingerprint=True)]
    assert len(graphs) == 4 and len(set(graphs)) == 1
    assert len(graphs[0]) == 16


def test_graphs_that_differ_have_other_fingerprints(pool):
    meshes = [{"replicate": 2, "shard": 2}, {"shard": 4}, {"tensor": 2, "context": 2}, {"replicate": 4}]
    graphs = {
        train(pool, configure(m, model=FAMILIES["llama3"]), 1, fingerprint=True)[0].graph for m in meshes
    }
    assert len(graphs) == len(meshes)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_model_breaks_the_graph_of_dynamo(family):
    model = build_model(ModelConfig.from_json(configure(model=FAMILIES[family])["model"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    tokens = global_batches(1)[0]
    program = torch.compile(model, fullgraph=True, backend="eager")
    whole, expected = (m(tokens[:, :-1], tokens[:, 1:]) for m in (program, model))
    torch.testing.assert_close(whole.objective, expected.objective)
    whole.objective.backward()


COMPILED = [
    ("llama3", {}, {}),
    ("qwen3-moe", {"replicate": 2, "shard": 2, "expert": 2}, {"experts": BALANCED, "remat": "full"}),
    ("qwen3", {"context": 2, "tensor": 2}, {"remat": "selective"}),
]


@pytest.mark.parametrize(("family", "mesh", "changes"), COMPILED, ids=str)
def test_compiled_steps_equal_eager_ones(pool, family, mesh, changes):
    config = configure(mesh, 2, model=FAMILIES[family], **changes)
    expected = train(pool, config, 10)
    outcomes = train(pool, config | {"compile": True}, 10, timeout_seconds=300)
    torch.testing.assert_close(losses(outcomes), losses(expected), atol=1e-5, rtol=0)
    assert outcomes[0].steps != expected[0].steps, "nothing was compiled"


def test_a_compiled_step_gathers_as_often_as_an_eager_one(pool):
    """A compiler that took two gathers of the same weights for one would keep the weights in between."""
    config = configure({"shard": 2}, model=FAMILIES["llama3"])
    eager, program = (
        train(pool, config | {"compile": on}, 2, count_collectives=True, timeout_seconds=300)[0].counted
        for on in (False, True)
    )
    # Three units; the first block is gathered again, and the totals are summed outside of the program.
    assert eager == {"all_gather_into_tensor": 4, "reduce_scatter_tensor": 3, "all_reduce": 1}
    assert program == eager


def test_ranks_with_different_programs_are_stopped():
    from titan_tpu.parallel.mesh import Axis

    class Pretender(Axis):
        def all_gather(self, x):
            return torch.cat((x, x, x + 1))

    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(RuntimeError, match=r"ranks \[2\] have traced another program"):
        compiled.require_one_program(graph, Pretender("world", 3, 0), torch.device("cpu"))
