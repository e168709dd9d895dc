//! Names of tensors: experts as a stack and one by one, and the order in which they are written.

/// A tensor of the Hub that is some rows of a stack of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Single {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    /// Where its rows begin in the stack, as a matrix with all dimensions but the last as rows.
    pub(super) first_row: u64,
}

/// The tensors that the Hub has in place of a stack of experts, in the order of its rows; nothing for any other tensor.
pub(super) fn singles(name: &str, shape: &[u64]) -> Option<Vec<Single>> {
    let (stem, last) = name.rsplit_once('.')?;
    let kinds: &[&str] = match last {
        "gate_up_proj" => &["gate_proj", "up_proj"],
        "down_proj" => &["down_proj"],
        _ => return None,
    };
    let [experts, rows, columns] = *shape else { return None };
    if !stem.ends_with(".experts") || !rows.is_multiple_of(kinds.len() as u64) {
        return None;
    }
    let each = rows / kinds.len() as u64;
    let all = (0..experts).flat_map(|expert| kinds.iter().map(move |kind| (expert, kind)));
    let single = |(place, (expert, kind)): (u64, (u64, &&str))| Single {
        name: format!("{stem}.{expert}.{kind}.weight"),
        shape: vec![each, columns],
        first_row: place * each,
    };
    Some((0..).zip(all).map(single).collect())
}

/// A piece of a name; of two, the one with the smaller number comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Number(u64),
    Text(String),
}

/// What names are sorted by: layer 10 comes after layer 2.
pub(super) fn order(name: &str) -> Vec<Word> {
    let word = |text: &str| text.parse().map_or_else(|_| Word::Text(text.to_owned()), Word::Number);
    name.split('.').map(word).collect()
}

/// Whether a tensor can be in a folder although a model does not have it: buffers that are worked out from the rest,
/// and the output head of a model whose embedding is used as one.
pub(super) fn is_superfluous(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq") || name == HEAD
}

/// The output head.
pub(super) const HEAD: &str = "lm_head.weight";

/// The embedding.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_in_another_order() {
        let found = singles("model.layers.3.mlp.experts.gate_up_proj", &[2, 6, 5]).unwrap();
        let names: Vec<_> = found.iter().map(|single| single.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "model.layers.3.mlp.experts.0.gate_proj.weight",
                "model.layers.3.mlp.experts.0.up_proj.weight",
                "model.layers.3.mlp.experts.1.gate_proj.weight",
                "model.layers.3.mlp.experts.1.up_proj.weight",
            ]
        );
        assert_eq!(found.iter().map(|single| single.first_row).collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert!(found.iter().all(|single| single.shape == [3, 5]));
        let found = singles("model.layers.3.mlp.experts.down_proj", &[2, 5, 3]).unwrap();
        assert_eq!(found[1].name, "model.layers.3.mlp.experts.1.down_proj.weight");
        assert_eq!((found[1].first_row, &found[1].shape[..]), (5, &[5, 3][..]));
    }

    #[test]
    fn other_tensors_are_taken_for_experts() {
        assert_eq!(singles("model.layers.3.mlp.down_proj.weight", &[2, 6, 5]), None);
        assert_eq!(singles("model.layers.3.mlp.down_proj", &[2, 6, 5]), None);
        assert_eq!(singles("model.layers.3.mlp.experts.gate_up_proj", &[6, 5]), None);
        assert_eq!(singles("model.layers.3.mlp.experts.gate_up_proj", &[2, 5, 5]), None);
        assert_eq!(singles("x", &[1, 1, 1]), None);
    }

    #[test]
    fn layer_10_comes_before_layer_2() {
        let mut names = ["model.norm", "model.layers.10.x", "model.layers.2.x", "lm_head"];
        names.sort_by_key(|name| order(name));
        assert_eq!(names, ["lm_head", "model.layers.2.x", "model.layers.10.x", "model.norm"]);
    }
}
