//! What a tensor is, and the part of one that a rank holds.

use serde::{Deserialize, Serialize};

use crate::Region;

/// Number formats, by the names that safetensors has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say all")]
pub enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    U8,
}

impl Dtype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 => 1,
        }
    }
}

/// A whole tensor. As a matrix it has all dimensions but the last as rows; a vector is a column, and a scalar a column of
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorFacts {
    /// The number format.
    pub dtype: Dtype,
    /// The shape.
    pub shape: Vec<u64>,
}

impl TensorFacts {
    /// Columns of the matrix.
    pub fn width(&self) -> u64 {
        if self.shape.len() > 1 { self.shape.last().copied().unwrap_or(1) } else { 1 }
    }

    /// Rows of the matrix; `None` if the shape has more elements than can be counted.
    pub fn rows(&self) -> Option<u64> {
        let rows = match self.shape.len() {
            0 | 1 => self.shape.as_slice(),
            dims => &self.shape[..dims - 1],
        };
        rows.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
    }

    /// The tensor as a region of itself; `None` if it has more bytes than can be counted.
    pub fn whole(&self) -> Option<Region> {
        let region = Region { rows: [0, self.rows()?], columns: [0, self.width()] };
        self.rows()?.checked_mul(self.width())?.checked_mul(self.dtype.bytes())?;
        Some(region)
    }
}

/// A part of a tensor, as one rank holds it: its elements row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the tensor.
    pub name: String,
    /// The whole tensor.
    pub tensor: TensorFacts,
    /// Which part of it.
    pub region: Region,
}

impl Part {
    /// The size of the part.
    pub fn bytes(&self) -> u64 {
        self.region.elements() * self.tensor.dtype.bytes()
    }
}
