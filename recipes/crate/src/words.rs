//! Settings that are a word from a fixed list, and settings that may be the word `auto`.

use serde::{Serialize, Serializer};

/// A type whose values are written as words in a recipe.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every word with its meaning, in the order that messages list them.
    const WORDS: &'static [(&'static str, Self)];

    /// The word for this value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// Declares an enum together with the words that a recipe uses for it.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $crate::words::Choice for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::words::Choice::word(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let known = <Self as $crate::words::Choice>::WORDS.iter().find(|(known, _)| *known == word);
                known.map(|(_, value)| *value).ok_or_else(|| {
                    serde::de::Error::custom(format!("{} has no choice {word:?}", stringify!($name)))
                })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::words::Choice::word(*self))
            }
        }
    };
}
pub(crate) use choice;

/// A number, or the word `auto`. There is no -1 that means "work it out".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    /// Worked out from the rest of the recipe.
    Auto,
    /// As written.
    Fixed(T),
}

impl<T> Auto<T> {
    /// The number that was written, if one was.
    pub fn fixed(self) -> Option<T> {
        match self {
            Auto::Auto => None,
            Auto::Fixed(value) => Some(value),
        }
    }
}

impl<T: Serialize> Serialize for Auto<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => serializer.serialize_str("auto"),
            Auto::Fixed(value) => value.serialize(serializer),
        }
    }
}

/// The word of `words` that `typed` was most likely meant to be: a synonym that users of other trainers
/// type, a word that differs by a few letters, or one that extends or shortens it.
pub(crate) fn nearest<'a>(
    typed: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let words: Vec<&str> = words.into_iter().collect();
    synonym(typed, &words).or_else(|| similar(typed, &words, JARO_WINKLER))
}

/// The word of `words` that another trainer calls `typed`.
pub(crate) fn synonym<'a>(typed: &str, words: &[&'a str]) -> Option<&'a str> {
    let typed = plain(typed)?;
    let ours = SYNONYMS.iter().filter(|(theirs, _)| *theirs == typed);
    ours.flat_map(|(_, ours)| words.iter().find(|word| *word == ours)).next().copied()
}

/// The word of `words` that looks most like `typed`, if the two differ by a few letters or if their Jaro-Winkler
/// similarity, which favours a common beginning, is at least `alike`.
pub(crate) fn similar<'a>(typed: &str, words: &[&'a str], alike: f64) -> Option<&'a str> {
    let typed = plain(typed)?;
    let score = |word: &str| plain(word).map_or(0.0, |word| strsim::jaro_winkler(&typed, &word));
    let close = |word: &&str| {
        let edits = plain(word).map_or(usize::MAX, |w| strsim::damerau_levenshtein(&typed, &w));
        edits <= 1 + word.len() / 5 && 3 * edits <= word.len() || score(word) >= alike
    };
    words.iter().copied().filter(close).max_by(|a, b| score(a).total_cmp(&score(b)))
}

/// The similarity from which a word of the same table is taken for a misspelling.
pub(crate) const JARO_WINKLER: f64 = 0.86;

/// A word without its case and dashes. Nobody misspells a word as one of this length, and comparing takes its
/// square.
fn plain(word: &str) -> Option<String> {
    const LONGEST: usize = 64;
    (word.len() <= LONGEST).then(|| word.to_lowercase().replace('-', "_"))
}

/// What TorchTitan, MaxText, transformers and nanoGPT call the same setting.
const SYNONYMS: &[(&str, &str)] = &[
    ("seq_len", "sequence_length"),
    ("seq_length", "sequence_length"),
    ("block_size", "sequence_length"),
    ("max_target_length", "sequence_length"),
    ("local_batch_size", "local_batch"),
    ("per_device_batch_size", "local_batch"),
    ("per_device_train_batch_size", "local_batch"),
    ("batch_size", "global_batch"),
    ("global_batch_size", "global_batch"),
    ("max_norm", "gradient_clip"),
    ("max_grad_norm", "gradient_clip"),
    ("grad_clip", "gradient_clip"),
    ("clip_grad", "gradient_clip"),
    ("num_steps", "steps"),
    ("max_steps", "steps"),
    ("max_iters", "steps"),
    ("lr", "learning_rate"),
    ("wd", "weight_decay"),
    ("eps", "epsilon"),
    ("beta", "betas"),
    ("optim", "optimizer"),
    ("lr_scheduler", "schedule"),
    ("scheduler", "schedule"),
    ("warmup", "warmup_steps"),
    ("warmup_iters", "warmup_steps"),
    ("dim", "hidden_size"),
    ("n_embd", "hidden_size"),
    ("n_layers", "num_layers"),
    ("n_layer", "num_layers"),
    ("num_hidden_layers", "num_layers"),
    ("n_heads", "num_heads"),
    ("n_head", "num_heads"),
    ("num_attention_heads", "num_heads"),
    ("n_kv_heads", "num_kv_heads"),
    ("num_key_value_heads", "num_kv_heads"),
    ("ffn_dim", "intermediate_size"),
    ("rms_norm_eps", "norm_eps"),
    ("theta", "rope_theta"),
    ("tie_word_embeddings", "tie_embeddings"),
    ("data_parallel_shard_degree", "shard"),
    ("dp_shard", "shard"),
    ("data_parallel_replicate_degree", "replicate"),
    ("dp_replicate", "replicate"),
    ("log_freq", "every_steps"),
    ("enable_tensorboard", "tensorboard"),
    ("dataset", "sources"),
    ("dtype", "compute"),
    ("mixed_precision_param", "compute"),
    ("name", "family"),
    ("flavor", "size"),
    ("train", "training"),
    ("bf16", "bfloat16"),
    ("fp32", "float32"),
    ("gpu", "cuda"),
    ("nvidia", "cuda"),
    ("tpu", "tpu7x"),
    ("mixed_precision_reduce", "reduce"),
    ("beta", "kl_coefficient"),
    ("kl_coef", "kl_coefficient"),
    ("folder", "directory"),
    ("keep_latest_k", "keep_last"),
    ("max_to_keep", "keep_last"),
    ("mode", "policy"),
    ("remat_policy", "policy"),
    ("activation_checkpoint", "remat"),
    ("activation_checkpointing", "remat"),
    ("partition", "queue"),
    ("evaluation", "validation"),
    ("eval", "validation"),
    ("tokenizer_path", "tokenizer"),
    ("num_slices", "slices"),
    ("expert_parallel_degree", "expert"),
    ("tensor_parallel_degree", "tensor"),
    ("context_parallel_degree", "context"),
    ("num_local_experts", "num_experts"),
    ("num_experts_per_tok", "experts_per_token"),
    ("top_k", "experts_per_token"),
    ("router_aux_loss_coef", "load_balancing_coefficient"),
    ("load_balance_coeff", "load_balancing_coefficient"),
    ("capacity_factor", "expert_capacity_factor"),
    ("z_loss_multiplier", "z_loss"),
    ("eos_token_id", "document_end"),
    ("eos_token", "document_end"),
    ("bos_token_id", "document_start"),
    ("bos_token", "document_start"),
    ("proportion", "weight"),
    ("text_column", "text_field"),
    ("dataset_text_field", "text_field"),
    ("prompt_column", "prompt_field"),
    ("response_column", "response_field"),
    ("completion_field", "response_field"),
    ("attn_implementation", "attention"),
    ("sdpa", "fused"),
    ("eager", "plain"),
    ("moe_intermediate_size", "expert_intermediate_size"),
    ("tpu v4", "v4"),
    ("tpu v5 lite", "v5e"),
    ("tpu v5e", "v5e"),
    ("v5litepod", "v5e"),
    ("tpu v5", "v5p"),
    ("tpu v5p", "v5p"),
    ("tpu v6 lite", "v6e"),
    ("tpu v6e", "v6e"),
    ("trillium", "v6e"),
    ("tpu v7x", "tpu7x"),
    ("v7x", "tpu7x"),
    ("tpu7", "tpu7x"),
    ("ironwood", "tpu7x"),
    ("a100", "cuda"),
    ("h100", "cuda"),
    ("h200", "cuda"),
    ("b200", "cuda"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typos_and_foreign_names_but_not_strangers() {
        let keys =
            ["steps", "sequence_length", "local_batch", "global_batch", "gradient_clip", "seed"];
        let cases = [
            ("sequence_lenght", Some("sequence_length")),
            ("seqence_length", Some("sequence_length")),
            ("seq_len", Some("sequence_length")),
            ("step", Some("steps")),
            ("Seed", Some("seed")),
            ("global-batch", Some("global_batch")),
            ("max_norm", Some("gradient_clip")),
            ("colour", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(nearest(typed, keys), expected, "{typed}");
        }
    }
}
