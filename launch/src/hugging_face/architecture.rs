//! What a language model is like, whoever describes it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use titan_checkpoint::{Dtype, TensorFacts};

/// A family of language models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama3,
    Qwen3,
    Qwen3Moe,
}

impl Family {
    /// Each with its name in recipes, that of its configuration and that of its class.
    pub(super) const ALL: [(Self, &'static str, &'static str, &'static str); 3] = [
        (Self::Llama3, "llama3", "llama", "LlamaForCausalLM"),
        (Self::Qwen3, "qwen3", "qwen3", "Qwen3ForCausalLM"),
        (Self::Qwen3Moe, "qwen3-moe", "qwen3_moe", "Qwen3MoeForCausalLM"),
    ];

    pub(super) fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(family, ..)| *family == self).map_or("", |found| found.1)
    }
}

/// All that the tensors and the arithmetic of a model depend on, in the words of recipes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Architecture {
    pub(super) family: Family,
    pub(super) vocab_size: u64,
    pub(super) hidden_size: u64,
    pub(super) num_layers: u64,
    pub(super) num_heads: u64,
    pub(super) num_kv_heads: u64,
    pub(super) head_dim: u64,
    /// Of a dense model.
    pub(super) intermediate_size: Option<u64>,
    pub(super) experts: Option<Experts>,
    pub(super) rope_theta: f64,
    pub(super) rope_scaling: Option<RopeScaling>,
    pub(super) norm_eps: f64,
    pub(super) tie_embeddings: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Experts {
    pub(super) count: u64,
    pub(super) per_token: u64,
    pub(super) intermediate_size: u64,
}

/// The stretched positions of Llama 3.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RopeScaling {
    pub(super) factor: f64,
    pub(super) low_frequency_factor: f64,
    pub(super) high_frequency_factor: f64,
    pub(super) original_length: u64,
}

/// A value that two models may have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    Word(&'static str),
    Whole(u64),
    Number(f64),
    Flag(bool),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Whole(number) => number.fmt(f),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

impl Architecture {
    /// The model that settings describe: those of a recipe by name, each as a recipe writes it, as a checkpoint has them.
    ///
    /// # Errors
    /// What cannot be said of the model.
    pub(crate) fn of_settings(settings: &Value) -> Result<Self, String> {
        let settings = Settings(settings);
        let word: String = settings.get("family")?;
        let family = Family::ALL.into_iter().find(|found| found.1 == word);
        let family = family.ok_or_else(|| format!("model.family is {word}"))?.0;
        let experts = || -> Result<_, String> {
            Ok(Experts {
                count: settings.get("num_experts")?,
                per_token: settings.get("experts_per_token")?,
                intermediate_size: settings.get("expert_intermediate_size")?,
            })
        };
        let is_mixture = family == Family::Qwen3Moe;
        let is_stretched =
            family == Family::Llama3 && settings.get::<String>("rope_scaling")? == "llama3";
        let scaling = || -> Result<_, String> {
            Ok(RopeScaling {
                factor: settings.get("rope_scaling_factor")?,
                low_frequency_factor: settings.get("rope_low_frequency_factor")?,
                high_frequency_factor: settings.get("rope_high_frequency_factor")?,
                original_length: settings.get("rope_original_length")?,
            })
        };
        Ok(Self {
            family,
            vocab_size: settings.get("vocab_size")?,
            hidden_size: settings.get("hidden_size")?,
            num_layers: settings.get("num_layers")?,
            num_heads: settings.get("num_heads")?,
            num_kv_heads: settings.get("num_kv_heads")?,
            head_dim: settings.get("head_dim")?,
            intermediate_size: match is_mixture {
                true => None,
                false => Some(settings.get("intermediate_size")?),
            },
            experts: is_mixture.then(experts).transpose()?,
            rope_theta: settings.get("rope_theta")?,
            rope_scaling: is_stretched.then(scaling).transpose()?,
            norm_eps: settings.get("norm_eps")?,
            tie_embeddings: settings.get("tie_embeddings")?,
        })
    }

    /// What it has, by the name that recipes have for it.
    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let mut facts = vec![
            ("family", Fact::Word(self.family.word())),
            ("vocab_size", Fact::Whole(self.vocab_size)),
            ("hidden_size", Fact::Whole(self.hidden_size)),
            ("num_layers", Fact::Whole(self.num_layers)),
            ("num_heads", Fact::Whole(self.num_heads)),
            ("num_kv_heads", Fact::Whole(self.num_kv_heads)),
            ("head_dim", Fact::Whole(self.head_dim)),
            ("rope_theta", Fact::Number(self.rope_theta)),
            ("norm_eps", Fact::Number(self.norm_eps)),
            ("tie_embeddings", Fact::Flag(self.tie_embeddings)),
        ];
        if let Some(size) = self.intermediate_size {
            facts.push(("intermediate_size", Fact::Whole(size)));
        }
        if let Some(Experts { count, per_token, intermediate_size }) = self.experts {
            facts.push(("num_experts", Fact::Whole(count)));
            facts.push(("experts_per_token", Fact::Whole(per_token)));
            facts.push(("expert_intermediate_size", Fact::Whole(intermediate_size)));
        }
        if self.family == Family::Llama3 {
            let word = if self.rope_scaling.is_some() { "llama3" } else { "none" };
            facts.push(("rope_scaling", Fact::Word(word)));
        }
        if let Some(scaling) = self.rope_scaling {
            facts.push(("rope_scaling_factor", Fact::Number(scaling.factor)));
            let (low, high) = (scaling.low_frequency_factor, scaling.high_frequency_factor);
            facts.push(("rope_low_frequency_factor", Fact::Number(low)));
            facts.push(("rope_high_frequency_factor", Fact::Number(high)));
            facts.push(("rope_original_length", Fact::Whole(scaling.original_length)));
        }
        facts
    }

    /// `model.hidden_size: 64 there, 128 here`, for each value that `there` does not have in common with this one.
    pub(super) fn differences(&self, there: &Self) -> Vec<String> {
        let (here, there) = (self.facts(), there.facts());
        let value = |facts: &[(&str, Fact)], name: &str| {
            let fact = facts.iter().find(|(other, _)| *other == name);
            fact.map_or_else(|| "not set".to_owned(), |(_, fact)| fact.to_string())
        };
        let only_there = there.iter().filter(|(name, _)| !here.iter().any(|(n, _)| n == name));
        let names = here.iter().chain(only_there).map(|(name, _)| *name);
        let both = names.map(|name| (name, value(&there, name), value(&here, name)));
        let differing = both.filter(|(_, there, here)| there != here);
        differing
            .map(|(name, there, here)| format!("model.{name}: {there} there, {here} here"))
            .collect()
    }

    /// Its weights, all of float32, by the names that transformers has for them in memory.
    pub(crate) fn tensors(&self) -> BTreeMap<String, TensorFacts> {
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[u64]| {
            tensors.insert(name, TensorFacts { dtype: Dtype::F32, shape: shape.to_vec() });
        };
        let hidden = self.hidden_size;
        let [queries, keys] = [self.num_heads, self.num_kv_heads].map(|n| n * self.head_dim);
        add("model.embed_tokens.weight".to_owned(), &[self.vocab_size, hidden]);
        add("model.norm.weight".to_owned(), &[hidden]);
        if !self.tie_embeddings {
            add("lm_head.weight".to_owned(), &[self.vocab_size, hidden]);
        }
        for layer in 0..self.num_layers {
            let mut add = |name: &str, shape: &[u64]| {
                add(format!("model.layers.{layer}.{name}"), shape);
            };
            add("input_layernorm.weight", &[hidden]);
            add("post_attention_layernorm.weight", &[hidden]);
            add("self_attn.q_proj.weight", &[queries, hidden]);
            add("self_attn.k_proj.weight", &[keys, hidden]);
            add("self_attn.v_proj.weight", &[keys, hidden]);
            add("self_attn.o_proj.weight", &[hidden, queries]);
            if self.family != Family::Llama3 {
                add("self_attn.q_norm.weight", &[self.head_dim]);
                add("self_attn.k_norm.weight", &[self.head_dim]);
            }
            if let Some(inner) = self.intermediate_size {
                add("mlp.gate_proj.weight", &[inner, hidden]);
                add("mlp.up_proj.weight", &[inner, hidden]);
                add("mlp.down_proj.weight", &[hidden, inner]);
            }
            if let Some(Experts { count, intermediate_size: inner, .. }) = self.experts {
                add("mlp.gate.weight", &[count, hidden]);
                add("mlp.experts.gate_up_proj", &[count, 2 * inner, hidden]);
                add("mlp.experts.down_proj", &[count, hidden, inner]);
            }
        }
        tensors
    }
}

/// Settings by name, each in words.
struct Settings<'a>(&'a Value);

impl Settings<'_> {
    fn get<T: FromStr>(&self, key: &str) -> Result<T, String> {
        let name = format!("model.{key}");
        let text = self.0[name.as_str()].as_str();
        let text = text.ok_or_else(|| format!("it does not say {name}"))?;
        // A text is in quotes.
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        text.parse().map_err(|_| format!("{name} is {text}"))
    }
}
