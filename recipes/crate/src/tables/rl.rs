//! `[rl]`: group-relative policy optimisation (GRPO, arXiv 2402.03300) and its relatives.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::reader::{ABOVE_ZERO_FRACTION, BELOW_ONE, Context, NOT_NEGATIVE, POSITIVE};
use crate::shown::Shown;
use crate::source::{Item, Loc};
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// How advantages are made and losses are averaged.
    Algorithm {
        /// Advantages in standard deviations of the group; each answer counts the same (arXiv 2402.03300).
        Grpo = "grpo",
        /// Advantages without division, sums over a constant length (arXiv 2503.20783).
        DrGrpo = "dr-grpo",
        /// Each token counts the same, a higher upper clip (arXiv 2503.14476).
        Dapo = "dapo",
    }
}

/// Reinforcement learning from rewards of whole answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rl {
    /// The algorithm.
    pub algorithm: Item<Algorithm>,
    /// The reward, by name.
    pub reward: Item<String>,
    /// Prompts of one step.
    pub prompts_per_step: Item<u64>,
    /// Answers to each prompt: the group.
    pub samples_per_prompt: Item<u64>,
    /// Tokens of the longest prompt.
    pub max_prompt_length: Item<u64>,
    /// Tokens of the longest answer.
    pub max_response_length: Item<u64>,
    /// Temperature of sampling.
    pub temperature: Item<f64>,
    /// Sampling takes the likeliest tokens that make up this probability.
    pub top_p: Item<f64>,
    /// The ratio of probabilities is clipped below 1 minus this.
    pub clip_low: Item<f64>,
    /// The ratio of probabilities is clipped above 1 plus this.
    pub clip_high: Item<f64>,
    /// Weight of the divergence from the first model.
    pub kl_coefficient: Item<f64>,
    /// Where the table was written.
    #[serde(skip)]
    pub at: Option<Loc>,
}

impl Rl {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Option<Self> {
        let mut t = cx.optional_section(root, "rl");
        let (exists, at) = (t.exists(), t.at());
        let algorithm = t.choice::<Algorithm>("algorithm");
        let algorithm = t.or(algorithm, Algorithm::Grpo);
        let reward = t.text("reward").filter(|reward| {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let is_name = !reward.is_empty() && reward.chars().all(legal);
            if !is_name {
                let what = format!("`rl.reward` = \"{}\" names no reward", Shown(&**reward));
                let problem = Diagnostic::error(what).at(reward.at.clone());
                t.reject("reward", problem.label("letters, digits, `-`, `_`, `.`"));
            }
            is_name
        });
        let reward = t.required(reward, String::new(), "\"exact-match\"");
        let mut count = |key, least, default| {
            let item = t.integer(key, least, 1 << 24);
            t.or(item, default)
        };
        let prompts_per_step = count("prompts_per_step", 1, 32);
        // The advantage of an answer that stands alone is always 0.
        let samples_per_prompt = count("samples_per_prompt", 2, 8);
        let max_prompt_length = count("max_prompt_length", 1, 512);
        let max_response_length = count("max_response_length", 1, 1024);
        let temperature = t.number("temperature", POSITIVE);
        let temperature = t.or(temperature, 1.0);
        let top_p = t.number("top_p", ABOVE_ZERO_FRACTION);
        let top_p = t.or(top_p, 1.0);
        let clip_low = t.number("clip_low", BELOW_ONE);
        let clip_low = t.or(clip_low, 0.2);
        let clip_high = t.number("clip_high", NOT_NEGATIVE);
        let high = if *algorithm == Algorithm::Dapo { 0.28 } else { 0.2 };
        let clip_high = t.or(clip_high, high);
        let kl_coefficient = t.number("kl_coefficient", NOT_NEGATIVE);
        let kl_coefficient = t.or(kl_coefficient, 0.0);
        t.finish();
        exists.then_some(Self {
            algorithm,
            reward,
            prompts_per_step,
            samples_per_prompt,
            max_prompt_length,
            max_response_length,
            temperature,
            top_p,
            clip_low,
            clip_high,
            kl_coefficient,
            at,
        })
    }
}
