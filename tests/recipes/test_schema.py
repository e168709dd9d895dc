"""The JSON schema of recipes: it is one, and it takes and refuses what `titan-tpu recipe check` does.

What several keys say together (a mesh that does not fit, a missing file) is for `recipe check` alone.
"""

import copy
import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))

DENSE = {
    "version": 1,
    "name": "dense",
    "model": {"family": "llama3", "size": "tiny"},
    "hardware": {"accelerator": "cpu", "devices": 1},
    "training": {"steps": 100, "sequence_length": 64, "local_batch": 1},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
    "schedule": {"kind": "cosine"},
    "data": {"sources": [{"path": "data.txt"}]},
}
WRITTEN_OUT = DENSE | {
    "model": {
        "family": "llama3",
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
    }
}
EXPERTS = DENSE | {"model": {"family": "qwen3-moe", "size": "tiny"}}
SLICES = EXPERTS | {
    "hardware": {"accelerator": "tpu7x", "topology": "2x2x1", "slices": 2},
    "parallelism": {"replicate": "slices"},
}
IMAGES = DENSE | {
    "model": {"family": "flux", "size": "tiny"},
    "training": {"steps": 100, "local_batch": 1},
    "flux": {"image_size": 64},
}
VALIDATED = DENSE | {"validation": {"interval_steps": 10, "sources": [{"path": "data.txt"}]}}
REWARDED = DENSE | {"rl": {"reward": "exact-match", "max_prompt_length": 16, "max_response_length": 32}}
HELD_OUT = DENSE | {"validation": {"interval_steps": 10, "fraction": 0.01}}
SAVED = DENSE | {"checkpoint": {"directory": "checkpoints"}}
UPPER = {"extends": "lower.toml", "training": {"steps": 50}}

ABSENT = object()

# What is written differently, and what the refusal must speak of.
REFUSED = {
    # Keys and tables.
    "unknown key at the top": (DENSE, {"flavour": "debug"}, "flavour"),
    "unknown table": (DENSE, {"profiling": {"enabled": True}}, "profiling"),
    "unknown key of a table": (DENSE, {"training.stepz": 5}, "stepz"),
    "key of another table": (DENSE, {"optimizer.warmup_steps": 5}, "warmup_steps"),
    "unknown key of a source": (DENSE, {"data.sources": [{"path": "data.txt", "share": 1.0}]}, "share"),
    "unknown key below extends": (UPPER, {"training.stepz": 5}, "stepz"),
    "no version": (DENSE, {"version": ABSENT}, "version"),
    "no model": (DENSE, {"model": ABSENT}, "model"),
    "no hardware": (DENSE, {"hardware": ABSENT}, "hardware"),
    "no training": (DENSE, {"training": ABSENT}, "training"),
    "no optimizer": (DENSE, {"optimizer": ABSENT}, "optimizer"),
    "no data": (DENSE, {"data": ABSENT}, "data"),
    "no family": (DENSE, {"model.family": ABSENT}, "family"),
    "no accelerator": (DENSE, {"hardware.accelerator": ABSENT}, "accelerator"),
    "no steps": (DENSE, {"training.steps": ABSENT}, "steps"),
    "no local batch": (DENSE, {"training.local_batch": ABSENT}, "local_batch"),
    "no sequence length": (DENSE, {"training.sequence_length": ABSENT}, "sequence_length"),
    "no learning rate": (DENSE, {"optimizer.learning_rate": ABSENT}, "learning_rate"),
    "no sources": (DENSE, {"data.sources": ABSENT, "data.tokenizer": "bytes"}, "sources"),
    "source without a path": (DENSE, {"data.sources": [{"weight": 1.0}]}, "path"),
    "no topology": (SLICES, {"hardware.topology": ABSENT}, "topology"),
    "topology on a CPU": (DENSE, {"hardware.topology": "2x2x1"}, "topology"),
    "one dimension of many": (WRITTEN_OUT, {"model.num_layers": ABSENT}, "num_layers"),
    "validation without an interval": (VALIDATED, {"validation.interval_steps": ABSENT}, "interval_steps"),
    "validation without sources": (VALIDATED, {"validation.sources": ABSENT}, "sources"),
    "validation of two kinds": (VALIDATED, {"validation.fraction": 0.1}, "fraction"),
    "prompt without a response": (
        DENSE,
        {"data.sources": [{"path": "data.txt", "prompt_field": "p"}]},
        "response_field",
    ),
    "response without a prompt": (
        VALIDATED,
        {"validation.sources": [{"path": "data.txt", "response_field": "r"}]},
        "prompt_field",
    ),
    "text and prompt": (
        UPPER,
        {"data.sources": [{"path": "data.txt", "text_field": "t", "response_field": "r"}]},
        "together",
    ),
    "text where answers are sampled": (
        REWARDED,
        {"data.sources": [{"path": "data.txt", "text_field": "t"}]},
        "prompts",
    ),
    "response where answers are sampled": (
        REWARDED,
        {"data.sources": [{"path": "data.txt", "prompt_field": "p", "response_field": "r"}]},
        "prompts",
    ),
    "one weight of two": (
        DENSE,
        {"data.sources": [{"path": "data.txt"}, {"path": "data.txt", "weight": 0.5}]},
        "weight",
    ),
    "rl without a reward": (REWARDED, {"rl.reward": ABSENT}, "reward"),
    "mask without an end of documents": (DENSE, {"training.document_mask": True}, "document_end"),
    "mask of bytes": (
        DENSE,
        {"training.document_mask": True, "data.tokenizer": "bytes", "data.document_end": "auto"},
        "document_end",
    ),
    "mask with the end switched off": (
        DENSE,
        {"training.document_mask": True, "data.tokenizer": "tokenizer.json", "data.document_end": "none"},
        "document_end",
    ),
    "wsd without decay_steps": (DENSE, {"schedule.kind": "wsd"}, "decay_steps"),
    # Kinds.
    "version of another format": (DENSE, {"version": 2}, "version"),
    "version in words": (DENSE, {"version": "1"}, "version"),
    "name is a number": (DENSE, {"name": 7}, "name"),
    "table is a number": (DENSE, {"metrics": 1}, "metrics"),
    "table is a list": (DENSE, {"compile": [True]}, "compile"),
    "text for an integer": (DENSE, {"training.steps": "100"}, "steps"),
    "broken number of steps": (DENSE, {"training.steps": 1.5}, "steps"),
    "boolean for an integer": (DENSE, {"training.seed": True}, "seed"),
    "boolean for a number": (DENSE, {"optimizer.learning_rate": True}, "learning_rate"),
    "text for a number": (DENSE, {"optimizer.learning_rate": "1e-3"}, "learning_rate"),
    "text for a boolean": (DENSE, {"compile.enabled": "yes"}, "enabled"),
    "number for a boolean": (DENSE, {"metrics.tensorboard": 1}, "tensorboard"),
    "number for a path": (DENSE, {"data.tokenizer": 256}, "tokenizer"),
    "text for a list": (DENSE, {"data.sources": "data.txt"}, "sources"),
    "texts for tables": (DENSE, {"data.sources": ["data.txt"]}, "sources"),
    "empty sources": (DENSE, {"data.sources": []}, "sources"),
    "empty sources of validation": (VALIDATED, {"validation.sources": []}, "sources"),
    "list too short": (DENSE, {"optimizer.betas": [0.9]}, "betas"),
    "list too long": (DENSE, {"optimizer.betas": [0.9, 0.95, 0.99]}, "betas"),
    "list of texts": (DENSE, {"optimizer.betas": ["0.9", "0.95"]}, "betas"),
    "two axes": (IMAGES, {"model.rope_axes": [16, 16]}, "rope_axes"),
    # Ranges.
    "no steps at all": (DENSE, {"training.steps": 0}, "steps"),
    "negative seed": (DENSE, {"training.seed": -1}, "seed"),
    "no batch": (DENSE, {"training.global_batch": 0}, "global_batch"),
    "learning rate of nought": (DENSE, {"optimizer.learning_rate": 0.0}, "learning_rate"),
    "negative z-loss": (DENSE, {"training.z_loss": -1e-4}, "z_loss"),
    "capacity below an even share": (
        EXPERTS,
        {"parallelism.expert_capacity_factor": 0.5},
        "expert_capacity_factor",
    ),
    "coefficient of nought": (EXPERTS, {"model.load_balancing_coefficient": 0}, "load_balancing_coefficient"),
    "negative end of documents": (DENSE, {"data.document_end": -1}, "document_end"),
    "broken number of a token": (DENSE, {"data.document_start": 1.5}, "document_start"),
    "nothing held out": (HELD_OUT, {"validation.fraction": 0}, "fraction"),
    "more than half held out": (HELD_OUT, {"validation.fraction": 0.6}, "fraction"),
    "prompts held out": (REWARDED, {"validation": {"interval_steps": 10, "fraction": 0.1}}, "fraction"),
    "images held out": (IMAGES, {"validation": {"interval_steps": 10, "fraction": 0.1}}, "fraction"),
    "field without a name": (DENSE, {"data.sources": [{"path": "data.txt", "text_field": ""}]}, "text_field"),
    "split without a name": (DENSE, {"data.sources": [{"path": "data.txt", "split": ""}]}, "split"),
    "negative weight decay": (DENSE, {"optimizer.weight_decay": -0.1}, "weight_decay"),
    "beta of one": (DENSE, {"optimizer.betas": [0.9, 1.0]}, "betas"),
    "momentum of one": (DENSE, {"optimizer.name": "sgd", "optimizer.momentum": 1.0}, "momentum"),
    "fraction above one": (DENSE, {"schedule.final_fraction": 1.5}, "final_fraction"),
    "gradient clip of nought": (DENSE, {"training.gradient_clip": 0.0}, "gradient_clip"),
    "grace above an hour": (DENSE, {"elastic.grace_seconds": 3601}, "grace_seconds"),
    "no grace": (DENSE, {"elastic.grace_seconds": 0}, "grace_seconds"),
    "weight of nought": (DENSE, {"data.sources": [{"path": "data.txt", "weight": 0.0}]}, "weight"),
    "too many heads": (DENSE, {"model.num_heads": 8192}, "num_heads"),
    "too many slices": (SLICES, {"hardware.slices": 1025}, "slices"),
    "no checkpoint kept": (SAVED, {"checkpoint.keep_last": 0}, "keep_last"),
    "every checkpoint of none kept": (SAVED, {"checkpoint.keep_every_steps": 0}, "keep_every_steps"),
    "top_p above one": (REWARDED, {"rl.top_p": 1.1}, "top_p"),
    "odd width of a head": (DENSE, {"model.head_dim": 33}, "head_dim"),
    "image that is not cut into tokens": (IMAGES, {"flux.image_size": 40}, "image_size"),
    # Choices.
    "unknown family": (DENSE, {"model.family": "gpt2"}, "family"),
    "unknown size": (DENSE, {"model.size": "7b"}, "size"),
    "size of another family": (DENSE, {"model.size": "0.6b"}, "size"),
    "size of no FLUX": (IMAGES, {"model.size": "8b"}, "size"),
    "key of another family": (DENSE, {"model.num_experts": 8}, "num_experts"),
    "key of FLUX": (DENSE, {"model.text_size": 32}, "text_size"),
    "dense width of experts": (EXPERTS, {"model.intermediate_size": 128}, "intermediate_size"),
    "key of language models": (IMAGES, {"model.vocab_size": 256}, "vocab_size"),
    "z-loss of images": (IMAGES, {"training.z_loss": 1e-4}, "z_loss"),
    "documents of images": (IMAGES, {"data.document_end": 0}, "document_end"),
    "unknown documents": (DENSE, {"data.sources": [{"path": "data.txt", "documents": "line"}]}, "documents"),
    "balance without experts": (DENSE, {"model.load_balancing": "bias"}, "load_balancing"),
    "unknown balance": (EXPERTS, {"model.load_balancing": "loss"}, "load_balancing"),
    "unknown attention": (DENSE, {"training.attention": "flex"}, "attention"),
    "table of FLUX": (DENSE, {"flux": {"image_size": 64}}, "flux"),
    "unknown accelerator": (DENSE, {"hardware.accelerator": "tpu-v9"}, "accelerator"),
    "unknown optimizer": (DENSE, {"optimizer.name": "lion"}, "optimizer"),
    "unknown schedule": (DENSE, {"schedule.kind": "step"}, "kind"),
    "unknown format": (DENSE, {"precision.compute": "float8"}, "compute"),
    "half weights": (DENSE, {"precision.params": "bfloat16"}, "params"),
    "unknown policy": (DENSE, {"remat.policy": "some"}, "policy"),
    "word of another key": (DENSE, {"training.global_batch": "none"}, "global_batch"),
    "unknown word for slices": (SLICES, {"parallelism.replicate": "auto"}, "replicate"),
    "unknown interval": (SAVED, {"checkpoint.interval": "often"}, "interval"),
    "two intervals": (
        SAVED,
        {"checkpoint.interval_steps": 10, "checkpoint.interval_seconds": 60},
        "interval_seconds",
    ),
    "fast tier without an interval": (SAVED, {"checkpoint.local_directory": "/tmp"}, "local_interval_steps"),
    # Names.
    "name with a slash": (DENSE, {"name": "a/b"}, "name"),
    "name too long": (DENSE, {"name": "n" * 64}, "name"),
    "variable with a hyphen": (DENSE, {"env": {"HF-TOKEN": "x"}}, "HF-TOKEN"),
    "variable that starts with a digit": (DENSE, {"env": {"1ST": "x"}}, "1ST"),
    "variable of a number": (DENSE, {"env": {"SIZE": 3}}, "SIZE"),
    "variable from a bad name": (DENSE, {"env": {"HF_TOKEN": {"from": "a b"}}}, "HF_TOKEN"),
    "variable from elsewhere": (DENSE, {"env": {"HF_TOKEN": {"file": "token"}}}, "HF_TOKEN"),
    "variable of ours": (DENSE, {"env": {"WORLD_SIZE": "2"}}, "WORLD_SIZE"),
}

ACCEPTED = {
    "dense": (DENSE, {}),
    "no name": (DENSE, {"name": ABSENT}),
    "no schedule": (DENSE, {"schedule": ABSENT}),
    "dimensions without a size": (WRITTEN_OUT, {}),
    "dimension over a size": (DENSE, {"model.num_layers": 3}),
    "experts": (EXPERTS, {}),
    "llama3 positions": (DENSE, {"model.rope_scaling": "llama3", "model.rope_scaling_factor": 8}),
    "positions as they are": (DENSE, {"model.rope_scaling": "none"}),
    "auto everywhere": (
        DENSE,
        {
            "hardware.devices": "auto",
            "hardware.threads_per_device": "auto",
            "parallelism.shard": "auto",
            "training.global_batch": "auto",
        },
    ),
    "slices": (SLICES, {}),
    "slices by number": (SLICES, {"parallelism.replicate": 2, "parallelism.shard": 8}),
    "lost slices": (
        SLICES,
        {
            "elastic.min_slices": 1,
            "elastic.max_restarts": 5,
            "checkpoint.directory": "gs://bucket/checkpoints",
        },
    ),
    "no gradient clip": (DENSE, {"training.gradient_clip": "none"}),
    "integers for numbers": (
        DENSE,
        {
            "optimizer.learning_rate": 1,
            "optimizer.weight_decay": 0,
            "training.gradient_clip": 1,
            "schedule.final_fraction": 0,
            "optimizer.betas": [0, 0.95],
            "data.sources": [{"path": "data.txt", "weight": 2}],
        },
    ),
    "largest seed": (DENSE, {"training.seed": 2**63 - 1}),
    "wsd": (DENSE, {"schedule": {"kind": "wsd", "decay_steps": 10, "decay_kind": "sqrt"}}),
    "experts in full": (
        EXPERTS,
        {
            "hardware.devices": 2,
            "parallelism.expert": 2,
            "parallelism.expert_capacity_factor": 2,
            "model.load_balancing": "bias",
            "model.load_balancing_coefficient": 1e-2,
        },
    ),
    "no token left out": (EXPERTS, {"parallelism.expert_capacity_factor": "dropless"}),
    "documents": (DENSE, {"training.document_mask": True, "data.document_end": 0}),
    "documents by auto": (DENSE, {"data.document_start": "auto", "data.document_end": "auto"}),
    "documents as they are": (DENSE, {"data.document_start": 1, "data.document_end": "none"}),
    "documents of a tokenizer": (
        DENSE,
        {
            "model.vocab_size": 3,
            "training.document_mask": True,
            "data.tokenizer": "tokenizer.json",
            "data.document_start": "a",
            "data.document_end": "</s>",
        },
    ),
    "documents as the tokenizer says": (
        DENSE,
        {"model.vocab_size": 3, "training.document_mask": True, "data.tokenizer": "tokenizer.json"},
    ),
    "fields": (
        DENSE,
        {"data.sources": [{"path": "*.txt", "text_field": "body", "documents": "lines", "split": "test"}]},
    ),
    "instructions": (
        DENSE,
        {"data.sources": [{"path": "data.txt", "prompt_field": "question", "response_field": "answer"}]},
    ),
    "prompts": (REWARDED, {"data.sources": [{"path": "data.txt", "prompt_field": "question"}]}),
    "plain attention and a z-loss": (DENSE, {"training.attention": "plain", "training.z_loss": 1e-4}),
    "plain attention of images": (IMAGES, {"training.attention": "plain"}),
    "muon": (DENSE, {"optimizer.name": "muon", "optimizer.momentum": 0.9}),
    "sgd": (DENSE, {"optimizer.name": "sgd"}),
    "two sources": (DENSE, {"data.sources": [{"path": "data.txt"}, {"path": "data.txt"}]}),
    "weights": (
        DENSE,
        {"data.sources": [{"path": "data.txt", "weight": 1}, {"path": "data.txt", "weight": 0.5}]},
    ),
    "addresses": (SLICES, {"data.sources": [{"path": "gs://bucket/corpus"}]}),
    "validation": (VALIDATED, {}),
    "validation of all": (VALIDATED, {"validation.steps": "all"}),
    "validation of some": (VALIDATED, {"validation.steps": 5}),
    "validation of a share": (HELD_OUT, {"validation.steps": 5}),
    "upper layer of a share": (UPPER, {"validation": {"interval_steps": 10, "fraction": 0.5}}),
    "upper layer of prompts": (
        UPPER,
        {"data.sources": [{"path": "data.txt", "prompt_field": "p", "response_field": "r"}]},
    ),
    "checkpoints": (SAVED, {}),
    "checkpoints by default": (DENSE, {"checkpoint": {}}),
    "checkpoints as it fits": (SAVED, {"checkpoint.interval": "auto"}),
    "checkpoints by steps": (SAVED, {"checkpoint.interval_steps": 10}),
    "checkpoints by seconds": (SAVED, {"checkpoint.interval_seconds": 600}),
    "checkpoints in two tiers": (
        SAVED,
        {
            "checkpoint.interval_steps": 50,
            "checkpoint.local_directory": "/tmp/titan",
            "checkpoint.local_interval_steps": 10,
        },
    ),
    "rl": (REWARDED, {}),
    "rl in full": (
        REWARDED,
        {
            "rl.algorithm": "dapo",
            "rl.temperature": 1,
            "rl.top_p": 0.9,
            "rl.clip_high": 0.28,
            "rl.kl_coefficient": 0,
        },
    ),
    "launch": (DENSE, {"launch.on": "local"}),
    "launch on a cluster": (
        SLICES,
        {"launch": {"on": "gke", "image": "image:1", "namespace": "train", "queue": "main"}},
    ),
    "variable from elsewhere": (DENSE, {"env": {"HF_TOKEN": {"from": "HOME"}}}),
    "variable as written": (DENSE, {"env": {"_OTHER1": "x"}}),
    "images": (IMAGES, {}),
    "images in full": (
        IMAGES,
        {"flux.text_length": 16, "flux.prompt_dropout": 0, "flux.timesteps": "logit-normal"},
    ),
    "images without their table": (IMAGES, {"flux": ABSENT}),
    "upper layer": (UPPER, {}),
    "upper layer of another optimizer": (UPPER, {"optimizer.name": "sgd"}),
    "upper layer of a schedule": (UPPER, {"schedule.kind": "wsd", "schedule.decay_steps": 5}),
    "upper layer with a version": (UPPER, {"version": 1}),
    "upper layer with all": (DENSE, {"extends": "lower.toml"}),
}


def changed(recipe: dict, changes: dict) -> dict:
    """A recipe with other values, by their whole names."""
    recipe = copy.deepcopy(recipe)
    for name, value in changes.items():
        *tables, key = name.split(".")
        place = recipe
        for table in tables:
            place = place.setdefault(table, {})
        if value is ABSENT:
            del place[key]
        else:
            place[key] = value
    return recipe


def cases(table: dict):
    return [pytest.param(*case, id=name.replace(" ", "-")) for name, case in table.items()]


def problems(validator, path) -> list[str]:
    """What the schema says about a recipe as it was written."""
    return [error.message for error in validator.iter_errors(tomllib.loads(path.read_text()))]


@pytest.fixture(scope="session")
def validator(schema):
    return Draft202012Validator(schema)


@pytest.fixture
def layers(titan):
    titan.write(DENSE, "lower.toml")
    added = [{"id": 2, "content": "</s>"}]
    tokenizer = {"added_tokens": added, "model": {"vocab": {"a": 0, "b": 1}}}
    (titan.folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return titan


def test_it_is_a_schema(schema):
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)


def properties(schema, place=""):
    """All properties with their whole names. Rules that only narrow one down are not among them."""
    for key, of in schema.get("properties", {}).items():
        name = f"{place}.{key}".lstrip(".")
        yield name, of
        yield from properties(of, name)
        yield from properties(of.get("items", {}), name)


def undescribed(schema, tables: bool) -> list[str]:
    return [
        name
        for name, of in properties(schema)
        if (of.get("type") == "object") == tables and not of.get("description", "").strip()
    ]


def test_every_key_is_described(schema):
    assert len(list(properties(schema))) > 100
    assert undescribed(schema, tables=False) == []


def test_every_table_is_described(schema):
    assert undescribed(schema, tables=True) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_are_valid(validator, path):
    assert problems(validator, path) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_resolved_recipes_are_valid(titan, validator, path):
    shown = titan.folder / "shown.toml"
    shown.write_text(titan.output("recipe", "show", path))
    assert problems(validator, shown) == []


@pytest.mark.parametrize(("recipe", "changes", "word"), cases(REFUSED))
def test_the_schema_refuses_what_check_refuses(layers, validator, recipe, changes, word):
    path = layers.write(changed(recipe, changes))
    done = layers.run("recipe", "check", path)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert problems(validator, path) != []


@pytest.mark.parametrize(("recipe", "changes"), cases(ACCEPTED))
def test_the_schema_takes_what_check_takes(layers, validator, recipe, changes):
    path = layers.write(changed(recipe, changes))
    done = layers.run("recipe", "check", path)
    assert done.returncode == 0, done.stderr
    assert problems(validator, path) == []
