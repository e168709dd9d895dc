"""How one parameter is cut into the shards that ranks hold.

A rank computes with the whole parameter, or with one of several equal parts of it where matrices or experts
are spread over ranks. The part is cut once more, among the ranks that compute with the same part.

For that second cut a part is a matrix: all its dimensions but the last are its rows, and a vector is a
column. Rank i of n holds rows [i * r, (i + 1) * r), where r is the number of rows over n, rounded up. Rows
past the end are padding and stay zero, so all shards have the same shape. Stacked experts are cut through
their rows too: cut by expert alone, 128 of them over 2048 ranks would be mostly padding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """One parameter, cut into `parts` equal parts along `dim`, and each part into `degree` equal shards."""

    shape: torch.Size
    """Shape of the whole parameter."""
    degree: int
    parts: int = 1
    dim: int = 0
    """The first dimension or the last (-1)."""

    @property
    def part_shape(self) -> torch.Size:
        """Shape of what a rank computes with."""
        sizes = list(self.shape)
        sizes[self.dim] //= self.parts
        return torch.Size(sizes)

    @property
    def width(self) -> int:
        """Elements of a row of a part."""
        return self.part_shape[-1] if len(self.shape) > 1 else 1

    @property
    def rows(self) -> int:
        """Rows of a part."""
        return self.part_shape.numel() // self.width

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
        """Rows of zeros behind the last row of a part, over all its shards."""
        return self.shard_rows * self.degree - self.rows

    def own_rows(self, part: int, index: int) -> tuple[int, int]:
        """First and last row, the latter not included, of shard `index` of a part without its padding, as
        rows of the whole parameter.
        """
        start = min(index * self.shard_rows, self.rows)
        stop = min(start + self.shard_rows, self.rows)
        first = part * self.rows if self.dim == 0 else 0
        return first + start, first + stop

    def own_columns(self, part: int) -> slice:
        """Columns of the whole parameter that are in a part."""
        return slice(part * self.width, (part + 1) * self.width) if self.dim == -1 else slice(None)

    def shard(self, rows: Tensor) -> Tensor:
        """The shard with these rows of its own: [own rows, width] -> `shard_shape`, as a copy."""
        shard = rows.new_zeros(self.shard_rows, self.width)
        shard[: len(rows)] = rows
        return shard.view(self.shard_shape)

    def split(self, part: Tensor) -> Tensor:
        """All shards of a whole part, each flat: `part_shape` -> [degree, elements of a shard]."""
        flat = part.reshape(-1)
        if self.padding:
            flat = torch.cat((flat, flat.new_zeros(self.padding * self.width)))
        return flat.view(self.degree, -1)

    def join(self, shards: Tensor) -> Tensor:
        """The inverse of `split`: [degree, elements of a shard] -> `part_shape`."""
        return shards.reshape(-1)[: self.part_shape.numel()].view(self.part_shape)
