"""Compares an exported model, as transformers reads it, with the engine's own model and the weights of the
checkpoint.

`hugging_face.py ENGINE CHECKPOINT CONFIG FOLDER...`: ENGINE is the folder of the engine's package, CONFIG the
engine's description of the model as JSON. Prints for each FOLDER a JSON object.

`hugging_face.py make FOLDER FAMILY`: writes a small model of a family with random weights with
`save_pretrained`, and prints the loss that transformers computes for the tokens on stdin, a list of rows.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM


def whole_tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, put together from the parts that its files have."""
    wholes: dict[str, torch.Tensor] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            parts = json.loads(file.metadata()["titan_parts"])["parts"]
            for name, part in parts.items():
                shape = part["shape"]
                width = shape[-1] if len(shape) > 1 else 1
                whole = wholes.setdefault(name, torch.full(shape, torch.nan))
                (first_row, last_row), (first, last) = part["rows"], part["columns"]
                target = whole.view(-1, width)[first_row:last_row, first:last]
                target.copy_(file.get_tensor(name).view(target.shape))
    return wholes


def compare(engine: str, checkpoint: str, config: str, folders: list[str]) -> None:
    sys.path.insert(0, engine)
    from titan_tpu.config import ModelConfig
    from titan_tpu.models import build_model

    ours = build_model(ModelConfig.from_json(json.loads(config)))
    tensors = whole_tensors(Path(checkpoint))
    weights = {name: tensor for name, tensor in tensors.items() if name in ours.state_dict()}
    if ours.lm_head.weight is ours.model.embed_tokens.weight:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    ours.load_state_dict(weights, strict=True)
    tokens = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = ours(tokens.to(torch.int32)).float()
    for folder in folders:
        theirs, report = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager"
        )
        with torch.no_grad():
            logits = theirs(input_ids=tokens, use_cache=False).logits.float()
        result = {
            "class": type(theirs).__name__,
            "dtype": str(theirs.dtype),
            "difference": (logits - expected).abs().max().item(),
            "spread": expected.std().item(),
            "eps": theirs.config.rms_norm_eps,
        }
        result |= {key: sorted(map(str, value)) for key, value in report.items() if key.endswith("_keys")}
        print(json.dumps(result))


def make(folder: str, family: str) -> None:
    common = {
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": family == "Qwen3",
    }
    if family == "Qwen3Moe":
        common |= {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
            "mlp_only_layers": [],
        }
    torch.manual_seed(1)
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**common))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    model.save_pretrained(folder, max_shard_size="40KB" if family == "Llama" else "1GB")
    tokens = torch.tensor(json.load(sys.stdin))
    with torch.no_grad():
        print(model(input_ids=tokens, labels=tokens, use_cache=False).loss.item())


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        compare(*sys.argv[1:4], sys.argv[4:])
