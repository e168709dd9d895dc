"""titan-tpu's engine: the mathematics of one training step, in PyTorch.

Rust owns recipes, data, schedules, metrics, checkpoints and signals, and drives this package through one
class, `titan_tpu.engine.Engine`. Every value arrives already validated; no default and no business rule is
repeated here.

Importing this package is instant: torch is imported only with `titan_tpu.engine`, so that a worker process
can first tie its life to its parent (see `titan_tpu.worker`).
"""

__version__ = "0.1.0"
