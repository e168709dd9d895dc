"""How one parameter is cut into the shards that ranks hold.

Rank i of n along the shard axis holds rows [i * r, (i + 1) * r) of dimension 0, where r is the number of rows
over n, rounded up. Rows past the end of the parameter are padding and stay zero, so all shards have the same
shape.
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
    def shard_shape(self) -> torch.Size:
        """Shape of every shard, padding included."""
        return torch.Size((-(-self.shape[0] // self.degree), *self.shape[1:]))

    @property
    def padding(self) -> int:
        """Rows of zeros behind the last row of the parameter, over all shards."""
        return self.shard_shape[0] * self.degree - self.shape[0]

    def shard(self, full: Tensor, index: int) -> Tensor:
        """Shard `index` of a whole tensor, as a copy: `shape` -> `shard_shape`."""
        rows = self.shard_shape[0]
        part = full[index * rows : (index + 1) * rows]
        shard = full.new_zeros(self.shard_shape)
        shard[: len(part)] = part
        return shard

    def split(self, full: Tensor) -> Tensor:
        """All shards of a whole tensor, each flat: `shape` -> [degree, elements of a shard]."""
        if self.padding:
            full = torch.cat((full, full.new_zeros(self.padding, *self.shape[1:])))
        return full.reshape(self.degree, -1)

    def join(self, shards: Tensor) -> Tensor:
        """The inverse of `split`: [degree, elements of a shard] -> `shape`."""
        return shards.reshape(-1, *self.shape[1:])[: self.shape[0]]
