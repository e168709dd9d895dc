"""How one parameter is cut into the shards that ranks hold.

A parameter is a matrix here: all its dimensions but the last are its rows, and a vector is a column. Rank
i of n along the shard axis holds rows [i * r, (i + 1) * r), where r is the number of rows over n, rounded
up. Rows past the end of the parameter are padding and stay zero, so all shards have the same shape.
Stacked experts are cut through their rows too: cut by expert alone, 128 of them over 2048 ranks would be
mostly padding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """One parameter, cut into `degree` equal shards."""

    shape: torch.Size
    """Shape of the whole parameter."""
    degree: int

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def rows(self) -> int:
        """Rows of the whole parameter."""
        return self.shape.numel() // self.width

    @property
    def shard_rows(self) -> int:
        """Rows of every shard, padding included."""
        return -(-self.rows // self.degree)

    @property
    def shard_shape(self) -> torch.Size:
        """Shape of every shard. A vector's shards are vectors, so that optimizers tell it from a matrix."""
        return torch.Size((self.shard_rows, self.width) if len(self.shape) > 1 else (self.shard_rows,))

    @property
    def padding(self) -> int:
        """Rows of zeros behind the last row of the parameter, over all shards."""
        return self.shard_rows * self.degree - self.rows

    def own_rows(self, index: int) -> tuple[int, int]:
        """First and last row, the latter not included, of shard `index` without its padding."""
        start = min(index * self.shard_rows, self.rows)
        return start, min(start + self.shard_rows, self.rows)

    def shard(self, rows: Tensor) -> Tensor:
        """The shard with these rows of its own: [own rows, width] -> `shard_shape`, as a copy."""
        shard = rows.new_zeros(self.shard_rows, self.width)
        shard[: len(rows)] = rows
        return shard.view(self.shard_shape)

    def split(self, full: Tensor) -> Tensor:
        """All shards of a whole tensor, each flat: `shape` -> [degree, elements of a shard]."""
        flat = full.reshape(-1)
        if self.padding:
            flat = torch.cat((flat, flat.new_zeros(self.padding * self.width)))
        return flat.view(self.degree, -1)

    def join(self, shards: Tensor) -> Tensor:
        """The inverse of `split`: [degree, elements of a shard] -> `shape`."""
        return shards.reshape(-1)[: self.shape.numel()].view(self.shape)
