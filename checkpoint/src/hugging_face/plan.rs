//! Which tensors a checkpoint gives a folder, and which files they go to.

use std::collections::BTreeMap;

use super::names::{Single, order, singles};
use super::{MODEL, header, is_weight};
use crate::{Dtype, TensorFacts};

/// How experts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertForm {
    /// One by one, as the Hub has them.
    Separate,
    /// As stacks, as transformers has them in memory.
    Fused,
}

/// What a folder is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The number format of the weights: F32, BF16 or F16.
    pub dtype: Dtype,
    /// How experts are written.
    pub experts: ExpertForm,
    /// The largest size of the tensors of a file, unless one tensor is larger.
    pub shard_bytes: u64,
}

/// A tensor that is written: rows of one of the checkpoint.
#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) source: &'a str,
    pub(super) facts: &'a TensorFacts,
    /// First and last row of it in the source, the latter not included.
    pub(super) rows: [u64; 2],
}

impl Output<'_> {
    pub(super) fn elements(&self) -> u64 {
        (self.rows[1] - self.rows[0]) * self.facts.width()
    }
}

/// A file that is written.
#[derive(Debug)]
pub(super) struct OutputFile<'a> {
    pub(super) name: String,
    pub(super) outputs: Vec<Output<'a>>,
}

impl OutputFile<'_> {
    pub(super) fn header(&self, dtype: Dtype) -> Vec<u8> {
        let tensors = self.outputs.iter().map(|o| (o.name.as_str(), o.shape.as_slice()));
        header::to_bytes(dtype, tensors)
    }
}

/// All files of a folder, with the weights among `tensors`.
pub(super) fn plan<'a>(
    tensors: &'a BTreeMap<String, TensorFacts>,
    form: &Form,
) -> Vec<OutputFile<'a>> {
    let mut files: Vec<Vec<Output<'_>>> = Vec::new();
    let mut room = 0;
    for output in outputs(tensors, form.experts) {
        let bytes = output.elements() * form.dtype.bytes();
        match files.last_mut() {
            Some(file) if bytes <= room => {
                room -= bytes;
                file.push(output);
            }
            _ => {
                room = form.shard_bytes.saturating_sub(bytes);
                files.push(vec![output]);
            }
        }
    }
    let count = files.len();
    let name = |number: usize| match count {
        1 => MODEL.to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
    };
    let files = files.into_iter().enumerate();
    files.map(|(number, outputs)| OutputFile { name: name(number), outputs }).collect()
}

fn outputs(tensors: &BTreeMap<String, TensorFacts>, experts: ExpertForm) -> Vec<Output<'_>> {
    let mut outputs = Vec::new();
    for (source, facts) in tensors.iter().filter(|(name, _)| is_weight(name)) {
        let whole = || Single { name: source.clone(), shape: facts.shape.clone(), first_row: 0 };
        let parts = match experts {
            ExpertForm::Separate => singles(source, &facts.shape),
            ExpertForm::Fused => None,
        };
        for Single { name, shape, first_row } in parts.unwrap_or_else(|| vec![whole()]) {
            let rows = TensorFacts { dtype: facts.dtype, shape: shape.clone() }.rows();
            let rows = [first_row, first_row + rows.unwrap_or_default()];
            outputs.push(Output { name, shape, source, facts, rows });
        }
    }
    outputs.sort_by_cached_key(|output| order(&output.name));
    outputs
}
