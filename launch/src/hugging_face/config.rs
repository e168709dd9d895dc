//! `config.json`: the description of a model that transformers reads.

use serde_json::{Map, Value, json};

use super::architecture::{Architecture, Experts, Family, RopeScaling};

/// What a description says beside the architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Details {
    /// The number format of the weights, in torch's words.
    pub(crate) dtype: &'static str,
    /// Tokens of the sequences that the model was trained on.
    pub(crate) sequence_length: u64,
}

/// The description of a model: with the names that transformers 5 has for things, and those that came before.
pub(crate) fn to_config(model: &Architecture, details: Details) -> Value {
    let found = Family::ALL.into_iter().find(|(family, ..)| *family == model.family);
    let (model_type, class) = found.map_or(("", ""), |found| (found.2, found.3));
    let stretched =
        model.rope_scaling.as_ref().map_or(0.0, |s| s.factor * s.original_length as f64);
    let mut rope = model.rope_scaling.as_ref().map_or_else(
        || json!({ "rope_type": "default" }),
        |scaling| {
            json!({
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_frequency_factor,
                "high_freq_factor": scaling.high_frequency_factor,
                "original_max_position_embeddings": scaling.original_length,
            })
        },
    );
    let scaling = if model.rope_scaling.is_some() { rope.clone() } else { Value::Null };
    rope["rope_theta"] = json!(model.rope_theta);
    let mut config = json!({
        "architectures": [class],
        "model_type": model_type,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "attention_bias": false,
        "attention_dropout": 0.0,
        "max_position_embeddings": details.sequence_length.max(stretched as u64),
        "rms_norm_eps": model.norm_eps,
        "rope_parameters": rope,
        "rope_theta": model.rope_theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": model.tie_embeddings,
        "initializer_range": 0.02,
        "use_cache": true,
        "dtype": details.dtype,
        "torch_dtype": details.dtype,
        // The defaults of Llama's class are ids of a tokenizer that this model may not have.
        "bos_token_id": null,
        "eos_token_id": null,
        "pad_token_id": null,
    });
    match model.family {
        Family::Llama3 => config["mlp_bias"] = json!(false),
        Family::Qwen3 | Family::Qwen3Moe => {
            config["use_sliding_window"] = json!(false);
            config["sliding_window"] = Value::Null;
            config["max_window_layers"] = json!(model.num_layers);
        }
    }
    if let Some(size) = model.intermediate_size {
        config["intermediate_size"] = json!(size);
    }
    if let Some(Experts { count, per_token, intermediate_size }) = model.experts {
        // No layer has this size; it is what a dense one with as many numbers in use would have.
        config["intermediate_size"] = json!(intermediate_size * per_token);
        config["num_experts"] = json!(count);
        config["num_local_experts"] = json!(count);
        config["num_experts_per_tok"] = json!(per_token);
        config["moe_intermediate_size"] = json!(intermediate_size);
        config["norm_topk_prob"] = json!(true);
        config["decoder_sparse_step"] = json!(1);
        config["mlp_only_layers"] = json!([]);
        config["output_router_logits"] = json!(false);
        config["router_aux_loss_coef"] = json!(0.001);
    }
    config
}

/// What a description says otherwise than `here`, a line each.
pub(super) fn differences(config: &Value, here: &Architecture) -> Vec<String> {
    let empty = Map::new();
    let reader = Reader { config: config.as_object().unwrap_or(&empty), wrong: Vec::new() };
    reader.compare(here)
}

struct Reader<'a> {
    config: &'a Map<String, Value>,
    wrong: Vec<String>,
}

impl Reader<'_> {
    fn compare(mut self, here: &Architecture) -> Vec<String> {
        let Some(family) = self.family() else {
            let there = self.value(&["model_type"]);
            let there = there.map_or_else(|| "not set".to_owned(), Value::to_string);
            return vec![format!("model.family: {there} there, {} here", here.family.word())];
        };
        self.expect_ours(family);
        let there = self.architecture(family);
        let mut lines = here.differences(&there);
        lines.append(&mut self.wrong);
        lines
    }

    /// The first of these keys that is set.
    fn value(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().filter_map(|key| self.config.get(*key)).find(|value| !value.is_null())
    }

    fn family(&self) -> Option<Family> {
        let word = self.value(&["model_type"])?.as_str()?;
        Family::ALL.into_iter().find(|found| found.2 == word).map(|found| found.0)
    }

    fn whole(&mut self, keys: &[&str], default: Option<u64>) -> u64 {
        let value = self.value(keys).cloned();
        let number = value.as_ref().map_or(default, Value::as_u64);
        self.needed(keys, value.as_ref(), number, "a whole number")
    }

    fn needed<T: Default>(
        &mut self,
        keys: &[&str],
        value: Option<&Value>,
        found: Option<T>,
        what: &str,
    ) -> T {
        if found.is_none() {
            let there = value.map_or_else(|| "not set".to_owned(), Value::to_string);
            self.wrong.push(format!("{} is {there}, and must be {what}", keys[0]));
        }
        found.unwrap_or_default()
    }

    /// What no model of ours has in another way.
    fn expect_ours(&mut self, family: Family) {
        let mut expected = vec![
            ("attention_bias", json!(false), json!(false)),
            ("mlp_bias", json!(false), json!(false)),
            ("hidden_act", json!("silu"), json!("silu")),
            ("use_sliding_window", json!(false), json!(false)),
        ];
        if family == Family::Qwen3Moe {
            expected.push(("norm_topk_prob", json!(false), json!(true)));
            expected.push(("decoder_sparse_step", json!(1), json!(1)));
            expected.push(("mlp_only_layers", json!([]), json!([])));
        }
        for (key, default, ours) in expected {
            let there = self.value(&[key]).unwrap_or(&default).clone();
            if there != ours {
                let line = format!("{key} is {there}, and models of titan-tpu have {ours}");
                self.wrong.push(line);
            }
        }
        if self.value(&["quantization_config"]).is_some() {
            self.wrong.push("quantization_config is set, and weights must not be quantized".into());
        }
    }

    fn architecture(&mut self, family: Family) -> Architecture {
        let is_llama = family == Family::Llama3;
        let hidden_size = self.whole(&["hidden_size"], None);
        let num_heads = self.whole(&["num_attention_heads"], None);
        let share = hidden_size.checked_div(num_heads).unwrap_or_default();
        let is_mixture = family == Family::Qwen3Moe;
        let (rope_theta, rope_scaling) = self.positions(is_llama);
        let eps = self.value(&["rms_norm_eps"]).cloned();
        let number = eps.as_ref().map_or(Some(1e-6), Value::as_f64);
        let norm_eps = self.needed(&["rms_norm_eps"], eps.as_ref(), number, "a number");
        let tied = self.value(&["tie_word_embeddings"]).cloned();
        let flag = tied.as_ref().map_or(Some(false), Value::as_bool);
        let tie_embeddings =
            self.needed(&["tie_word_embeddings"], tied.as_ref(), flag, "true or false");
        Architecture {
            family,
            vocab_size: self.whole(&["vocab_size"], None),
            hidden_size,
            num_layers: self.whole(&["num_hidden_layers"], None),
            num_heads,
            num_kv_heads: self.whole(&["num_key_value_heads"], Some(num_heads)),
            head_dim: self.whole(&["head_dim"], Some(if is_llama { share } else { 128 })),
            intermediate_size: match is_mixture {
                true => None,
                false => Some(self.whole(&["intermediate_size"], None)),
            },
            experts: is_mixture.then(|| Experts {
                count: self.whole(&["num_experts", "num_local_experts"], None),
                per_token: self.whole(&["num_experts_per_tok"], None),
                intermediate_size: self.whole(&["moe_intermediate_size"], None),
            }),
            rope_theta,
            rope_scaling,
            norm_eps,
            tie_embeddings,
        }
    }

    /// The base of the frequencies, and how positions are stretched: as transformers 5 writes it, or as those before.
    fn positions(&mut self, is_llama: bool) -> (f64, Option<RopeScaling>) {
        let empty = json!({});
        let all = self.value(&["rope_parameters", "rope_scaling"]).unwrap_or(&empty).clone();
        let theta = all.get("rope_theta").or_else(|| self.value(&["rope_theta"])).cloned();
        let number = theta.as_ref().map_or(Some(10_000.0), Value::as_f64);
        let theta = self.needed(&["rope_theta"], theta.as_ref(), number, "a number");
        let kind = all.get("rope_type").or_else(|| all.get("type")).and_then(Value::as_str);
        match kind.unwrap_or("default") {
            "default" => (theta, None),
            "llama3" if is_llama => (theta, Some(self.scaling(&all))),
            kind => {
                self.wrong.push(format!("rope_type is {kind:?}, which titan-tpu cannot compute"));
                (theta, None)
            }
        }
    }

    fn scaling(&mut self, all: &Value) -> RopeScaling {
        let mut number = |key: &str| {
            let value = all.get(key);
            self.needed(&[key], value, value.and_then(Value::as_f64), "a number")
        };
        RopeScaling {
            factor: number("factor"),
            low_frequency_factor: number("low_freq_factor"),
            high_frequency_factor: number("high_freq_factor"),
            original_length: number("original_max_position_embeddings") as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of a family as a checkpoint has them.
    fn settings(family: &str) -> Value {
        let mut settings = json!({
            "model.family": format!("\"{family}\""), "model.size": "\"some\"",
            "model.vocab_size": "128256", "model.hidden_size": "4096",
            "model.num_layers": "32", "model.num_heads": "32", "model.num_kv_heads": "8",
            "model.head_dim": "128", "model.rope_theta": "500000.0", "model.norm_eps": "1e-5",
            "model.tie_embeddings": "false",
        });
        let more = match family {
            "llama3" => json!({
                "model.intermediate_size": "14336", "model.rope_scaling": "\"llama3\"",
                "model.rope_scaling_factor": "8.0", "model.rope_low_frequency_factor": "1.0",
                "model.rope_high_frequency_factor": "4.0", "model.rope_original_length": "8192",
            }),
            "qwen3" => json!({ "model.intermediate_size": "14336" }),
            _ => json!({
                "model.num_experts": "128", "model.experts_per_token": "8",
                "model.expert_intermediate_size": "768",
            }),
        };
        let more = more.as_object().unwrap().clone();
        settings.as_object_mut().unwrap().extend(more);
        settings
    }

    fn architecture(family: &str) -> Architecture {
        Architecture::of_settings(&settings(family)).unwrap()
    }

    /// As the Hub has it for Llama 3.1 8B.
    fn on_the_hub() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128000,
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
            "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "pretraining_tp": 1, "rms_norm_eps": 1e-5,
            "rope_scaling": {
                "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192, "rope_type": "llama3"
            },
            "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "vocab_size": 128256
        })
    }

    #[test]
    fn a_description_of_ours_differs() {
        for family in ["llama3", "qwen3", "qwen3-moe"] {
            let model = architecture(family);
            let details = Details { dtype: "bfloat16", sequence_length: 4096 };
            let mut config = to_config(&model, details);
            assert_eq!(differences(&config, &model), Vec::<String>::new());
            // Each of the two ways to describe positions is enough.
            let all = config.clone();
            config.as_object_mut().unwrap().remove("rope_parameters");
            assert_eq!(differences(&config, &model), Vec::<String>::new());
            config = all;
            config
                .as_object_mut()
                .unwrap()
                .retain(|key, _| !matches!(&key[..], "rope_theta" | "rope_scaling"));
            assert_eq!(differences(&config, &model), Vec::<String>::new());
        }
    }

    #[test]
    fn a_description_on_the_hub_differs() {
        assert_eq!(differences(&on_the_hub(), &architecture("llama3")), Vec::<String>::new());
    }

    #[test]
    fn a_difference_is_not_named() {
        let model = architecture("llama3");
        let lines = [
            ("hidden_size", json!(8192), vec!["model.hidden_size: 8192 there, 4096 here"]),
            (
                "hidden_size",
                json!("wide"),
                vec!["hidden_size is \"wide\", and must be a whole number"],
            ),
            ("num_hidden_layers", json!(-1), vec!["num_hidden_layers is -1"]),
            ("num_key_value_heads", Value::Null, vec!["model.num_kv_heads: 32 there, 8 here"]),
            ("head_dim", json!(64), vec!["model.head_dim: 64 there, 128 here"]),
            ("rms_norm_eps", json!(1e-6), vec!["model.norm_eps: 1e-6 there, 1e-5 here"]),
            ("rope_theta", json!(10000), vec!["model.rope_theta: 10000.0 there, 500000.0 here"]),
            (
                "rope_scaling",
                Value::Null,
                vec![
                    "model.rope_scaling: none there, llama3 here",
                    "model.rope_scaling_factor: not set there, 8.0 here",
                ],
            ),
            ("rope_scaling", json!({"rope_type": "yarn"}), vec!["rope_type is \"yarn\""]),
            ("rope_scaling", json!({"type": "llama3"}), vec!["factor is not set"]),
            (
                "tie_word_embeddings",
                json!(true),
                vec!["model.tie_embeddings: true there, false here"],
            ),
            ("attention_bias", json!(true), vec!["attention_bias is true"]),
            ("hidden_act", json!("gelu"), vec!["hidden_act is \"gelu\""]),
            ("quantization_config", json!({}), vec!["must not be quantized"]),
            ("model_type", json!("mistral"), vec!["model.family: \"mistral\" there, llama3 here"]),
            ("model_type", json!("qwen3"), vec!["model.family: qwen3 there, llama3 here"]),
        ];
        for (key, value, expected) in lines {
            let mut config = on_the_hub();
            config[key] = value;
            let found = differences(&config, &model).join("\n");
            for line in expected {
                assert!(found.contains(line), "{key}: {found}");
            }
        }
        assert!(!differences(&json!([]), &model).is_empty());
    }

    #[test]
    fn weights_of_experts_are_not_normed_is_not_noticed() {
        let model = architecture("qwen3-moe");
        let mut config = to_config(&model, Details { dtype: "float32", sequence_length: 1 });
        config.as_object_mut().unwrap().remove("norm_topk_prob");
        config["decoder_sparse_step"] = json!(2);
        config["num_experts_per_tok"] = json!(4);
        let lines = [
            "model.experts_per_token: 4 there, 8 here",
            "norm_topk_prob is false, and models of titan-tpu have true",
            "decoder_sparse_step is 2, and models of titan-tpu have 1",
        ];
        assert_eq!(differences(&config, &model), lines);
    }

    #[test]
    fn a_checkpoint_that_lacks_a_setting_is_described() {
        let mut settings = settings("qwen3");
        settings.as_object_mut().unwrap().remove("model.head_dim");
        let error = Architecture::of_settings(&settings).unwrap_err();
        assert_eq!(error, "it does not say model.head_dim");
        assert!(Architecture::of_settings(&Value::Null).is_err());
        settings["model.family"] = json!("\"flux\"");
        assert_eq!(Architecture::of_settings(&settings).unwrap_err(), "model.family is flux");
    }
}
