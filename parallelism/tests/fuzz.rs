//! Mutated recipes: whatever is done to one, loading it ends with a report or with a recipe that can be reckoned with,
//! and never with a panic. `PROPTEST_CASES=1000000 cargo test --release -p titan-parallelism --test fuzz` fuzzes for
//! longer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use proptest::prelude::*;
use titan_parallelism::{Convention, plan};
use titan_recipes::{
    Diagnostic, Files, Layout, Overrides, Purpose, Recipe, Source, TokenizerFacts, Unusable,
    load_text, shipped,
};

/// A recipe with every table and nearly every key.
const EVERYTHING: &str = r#"version = 1
name = "every-thing"
[model]
family = "qwen3-moe"
size = "30b-a3b"
init = "random"
init_std = 0.02
vocab_size = 151936
hidden_size = 2048
num_experts = 128
experts_per_token = 8
expert_intermediate_size = 768
num_layers = 48
num_heads = 32
num_kv_heads = 4
head_dim = 128
rope_theta = 1e6
norm_eps = 1e-6
tie_embeddings = false
[hardware]
accelerator = "tpu7x"
topology = "4x4x4"
slices = 2
devices = "auto"
threads_per_device = 2
peak_tflops = 1153.5
[parallelism]
replicate = "slices"
shard = "auto"
expert = 16
tensor = 2
context = 2
[training]
steps = 1000
sequence_length = 4096
local_batch = 2
global_batch = 128
gradient_clip = "none"
seed = 1
[optimizer]
name = "muon"
learning_rate = 3e-4
betas = [0.9, 0.95]
epsilon = 1e-8
momentum = 0.95
weight_decay = 0.1
[schedule]
kind = "wsd"
warmup_steps = 10
decay_steps = 100
decay_kind = "sqrt"
final_fraction = 0.0
[precision]
params = "float32"
compute = "bfloat16"
reduce = "bfloat16"
[remat]
policy = "full"
[compile]
enabled = true
[data]
sources = [{ path = "gs://b/x", weight = 0.5 }, { path = "s3://k:pw@b/y", weight = 2, prompt_field = "p" }]
tokenizer = "tokenizer.json"
document_start = "none"
document_end = "<|endoftext|>"
on_bad_record = "skip"
[validation]
interval_steps = 100
steps = "all"
sources = [{ path = "gs://b/v", documents = "lines", split = "test" }]
[checkpoint]
directory = "checkpoints"
interval_steps = 100
keep_last = 3
keep_every_steps = 1000
local_directory = "/dev/shm/t"
local_interval_steps = 10
[metrics]
every_steps = 1
tensorboard = true
[elastic]
min_slices = 1
max_restarts = 3
grace_seconds = 60
[launch]
on = "gke"
image = "i"
namespace = "n"
queue = "q"
[rl]
algorithm = "dapo"
reward = "exact-match"
prompts_per_step = 8
samples_per_prompt = 8
max_prompt_length = 512
max_response_length = 1024
temperature = 1.0
top_p = 0.9
clip_low = 0.2
clip_high = 0.28
kl_coefficient = 0.0
[env]
TOKEN = "hush-hush"
HOME_OF = { from = "HOME" }
"#;

const FLUX: &str = r#"version = 1
[model]
family = "flux"
size = "dev"
hidden_size = 3072
num_heads = 24
num_double_layers = 19
num_single_layers = 38
intermediate_size = 12288
in_channels = 64
text_size = 4096
pooled_size = 768
guidance_embedding = true
rope_axes = [16, 56, 56]
[hardware]
accelerator = "v5p"
topology = "4x4x4"
[training]
steps = 10
local_batch = 4
[optimizer]
learning_rate = 1e-4
[data]
sources = [{ path = "latents/**/*.parquet", text_field = "caption" }]
[flux]
image_size = 256
text_length = 512
prompt_dropout = 0.1
timesteps = "logit-normal"
"#;

/// Values that break arithmetic, kinds and ranges.
const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "1024",
    "1048576",
    "1000000007",
    "4294967296",
    "9223372036854775807",
    "170141183460469231731687303715884105727",
    "1e308",
    "-1e-308",
    "nan",
    "inf",
    "0.5",
    "\"auto\"",
    "\"slices\"",
    "\"none\"",
    "\"all\"",
    "\"\"",
    "\"********\"",
    "\"gs://u:p@b/x?token=z\"",
    "\"256x256x256\"",
    "\"16x16\"",
    "\"2x2x1\"",
    "\"cpu\"",
    "\"v6e\"",
    "\"llama3\"",
    "\"qwen3\"",
    "\"flux\"",
    "\"tiny\"",
    "\"235b-a22b\"",
    "true",
    "[]",
    "[1, 2]",
    "[[]]",
    "{}",
    "{ from = \"A\" }",
    "[{}]",
    "1979-05-27",
    "\"\"\"\nx\n\"\"\"",
];

/// Lines that can stand anywhere.
const LINES: &[&str] = &[
    "[env]",
    "[model]",
    "[[model]]",
    "[data.sources]",
    "[[data.sources]]",
    "extends = \"base.toml\"",
    "env = { A = \"hush-hush\" }",
    "env.A = \"hush-hush\"",
    "size = \"8b\"",
    "x",
    "= 1",
    "[",
    "\"",
    "'''",
    "\u{feff}",
    "\u{202e}a = 1",
];

#[derive(Clone, Debug)]
enum Edit {
    Value(prop::sample::Index, &'static str),
    Insert(prop::sample::Index, &'static str),
    Delete(prop::sample::Index),
    Move(prop::sample::Index, prop::sample::Index),
    Splice(prop::sample::Index, usize, String),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (index(), prop::sample::select(VALUES)).prop_map(|(at, v)| Edit::Value(at, v)),
        1 => (index(), prop::sample::select(LINES)).prop_map(|(at, l)| Edit::Insert(at, l)),
        2 => index().prop_map(Edit::Delete),
        1 => (index(), index()).prop_map(|(from, to)| Edit::Move(from, to)),
        1 => (index(), 0..4_usize, ".{0,3}").prop_map(|(at, n, t)| Edit::Splice(at, n, t)),
    ]
}

fn apply(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits {
        let length = lines.len().max(1);
        match edit {
            Edit::Value(at, value) => {
                if let Some(line) = lines.get_mut(at.index(length))
                    && let Some((key, _)) = line.split_once('=')
                {
                    *line = format!("{}= {value}", key);
                }
            }
            Edit::Insert(at, line) => lines.insert(at.index(lines.len() + 1), (*line).to_owned()),
            Edit::Delete(at) if !lines.is_empty() => drop(lines.remove(at.index(length))),
            Edit::Move(from, to) if !lines.is_empty() => {
                let line = lines.remove(from.index(length));
                lines.insert(to.index(lines.len() + 1), line);
            }
            Edit::Splice(at, deleted, inserted) => {
                if let Some(line) = lines.get_mut(at.index(length)) {
                    let mut chars: Vec<char> = line.chars().collect();
                    let start = at.index(chars.len() + 1);
                    let end = (start + deleted).min(chars.len());
                    chars.splice(start..end, inserted.chars());
                    *line = chars.into_iter().collect();
                }
            }
            _ => {}
        }
    }
    lines.join("\n")
}

/// A recipe that others can extend, and no file that cannot be used.
struct Shelf;

impl Files for Shelf {
    fn recipe(&self, path: &Path) -> Result<String, Box<Diagnostic>> {
        match path.ends_with("base.toml") {
            true => Ok(EVERYTHING.to_owned()),
            false => Err(Box::new(Diagnostic::error("no such file"))),
        }
    }

    fn file(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn data(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn tokenizer(&self, _: &Path, _: &[&str]) -> Result<TokenizerFacts, Unusable> {
        let added = vec![("<|endoftext|>".to_owned(), 151_643)];
        Ok(TokenizerFacts {
            largest_id: 151_668,
            end: Some(151_643),
            added,
            ..TokenizerFacts::default()
        })
    }

    fn folder(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }
}

/// Everything that is done with a sound recipe before it runs.
fn reckon(recipe: &Recipe, layout: &Layout) {
    for convention in [Convention::Causal, Convention::Palm, Convention::SixN] {
        let plan = plan(recipe, layout, convention);
        let (mesh, memory) = (plan.mesh, plan.memory_per_device);
        assert_eq!(plan.world, mesh.replicate * mesh.shard * mesh.context * mesh.tensor);
        let ranks = mesh.replicate * mesh.shard;
        assert_eq!(plan.global_batch, plan.local_batch * ranks * plan.accumulation);
        assert!(plan.parameters.active <= plan.parameters.total);
        assert!(memory.state_bytes >= memory.parameters_bytes);
        assert!(plan.flops_per_token > 0);
    }
}

fn check(text: &str, set: &[String]) {
    for purpose in [Purpose::Plan, Purpose::Check, Purpose::Train] {
        let source = Source { name: "r.toml".into(), text: text.into(), base: "/".into() };
        let overrides = Overrides { set: set.to_vec(), base: "/".into(), ..Overrides::default() };
        let rendered = match load_text(source, &overrides, &Shelf, purpose) {
            Ok(loaded) => {
                reckon(&loaded.recipe, &loaded.layout);
                let settings = loaded.settings().expect("a recipe is TOML");
                let shown: Vec<String> = settings.iter().map(|setting| setting.text()).collect();
                let written = loaded.recipe.to_toml(&loaded.layout).expect("a recipe is TOML");
                again(&written, &loaded.recipe, &loaded.layout);
                shown.join("\n") + &written + &loaded.warnings.render(false)
            }
            Err(report) => {
                assert!(report.errors() > 0);
                report.render(false)
            }
        };
        let is_shown = rendered.contains("hush-hush") && secrets_are_marked(text);
        assert!(!is_shown, "a secret is shown: {rendered}");
    }
}

/// Whether every secret of a text is still in a table `env`, and so can be known to be one.
fn secrets_are_marked(text: &str) -> bool {
    let mut header = "";
    text.lines().all(|line| {
        if line.trim_start().starts_with('[') {
            header = line;
        }
        !line.contains("hush-hush") || header == "[env]" || line.starts_with("env")
    })
}

/// A resolved recipe means what the recipe meant.
fn again(text: &str, recipe: &Recipe, layout: &Layout) {
    let source = Source { name: "again.toml".into(), text: text.into(), base: "/".into() };
    match load_text(source, &Overrides::default(), &Shelf, Purpose::Plan) {
        Ok(loaded) => {
            assert_eq!(loaded.layout, *layout, "{text}");
            assert_eq!(loaded.recipe.to_toml(&loaded.layout).unwrap(), text);
            // Not the whole model: a password in the address of its first weights is masked.
            assert_eq!(loaded.recipe.model.dimensions, recipe.model.dimensions);
        }
        Err(report) => panic!("{}\n{text}", report.render(false)),
    }
}

fn text() -> impl Strategy<Value = &'static str> {
    let shipped = shipped::ALL.iter().map(|shipped| shipped.text);
    let texts: Vec<&str> = shipped.chain([EVERYTHING; 8]).chain([FLUX; 4]).collect();
    prop::sample::select(texts)
}

#[test]
fn the_unmutated_recipes_are_sound() {
    for text in shipped::ALL.iter().map(|shipped| shipped.text).chain([EVERYTHING, FLUX]) {
        let source = Source { name: "r.toml".into(), text: text.into(), base: "/".into() };
        if let Err(report) = load_text(source, &Overrides::default(), &Shelf, Purpose::Check) {
            panic!("{}", report.render(false));
        }
        check(text, &[]);
    }
}

proptest! {
    #[test]
    fn no_mutation_of_a_recipe_makes_anything_panic(
        text in text(),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        check(&apply(text, &edits), &[]);
    }

    #[test]
    fn no_override_of_a_setting_makes_anything_panic(
        text in text(),
        key in any::<prop::sample::Index>(),
        values in prop::collection::vec(prop::sample::select(VALUES), 1..4),
    ) {
        // Keys of the recipe with every table, by their whole names.
        let mut table = String::new();
        let mut keys = Vec::new();
        for line in EVERYTHING.lines().chain(FLUX.lines()) {
            if let Some(name) = line.strip_prefix('[') {
                table = name.trim_end_matches(']').to_owned() + ".";
            } else if let Some((key, _)) = line.split_once(" = ") {
                keys.push(format!("{table}{key}"));
            }
        }
        let set: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(n, value)| format!("{}={value}", keys[(key.index(keys.len()) + 17 * n) % keys.len()]))
            .collect();
        check(text, &set);
    }
}
