//! Texts that cannot be imported.

use expect_test::expect;

use crate::support::refused;

#[test]
fn values_of_a_wrong_kind_are_shown_at_their_place() {
    refused(
        r#"[training]
steps = "ten"
local_batch_size = "4"
seq_len = 2048.0
max_norm = true
dataset = ["c4"]

[optimizer]
lr = "3e-4"
name = 1

[compile]
enable = "true"

[checkpoint]
enable = 1

[lr_scheduler]
warmup_steps = { steps = 1 }
"#,
        expect![[r#"
            error: `training.steps` must be an integer, found a string
             --> /home/me/titan.toml:2:9
              |
            2 | steps = "ten"
              |         ^^^^^ must be an integer

            error: `training.local_batch_size` must be an integer, found a string
             --> /home/me/titan.toml:3:20
              |
            3 | local_batch_size = "4"
              |                    ^^^ must be an integer
              |
              = help: write it without quotes: local_batch_size = 4

            error: `training.seq_len` must be an integer, found a float
             --> /home/me/titan.toml:4:11
              |
            4 | seq_len = 2048.0
              |           ^^^^^^ must be an integer
              |
              = help: write 2048

            error: `training.max_norm` must be a number, found a boolean
             --> /home/me/titan.toml:5:12
              |
            5 | max_norm = true
              |            ^^^^ must be a number

            error: `training.dataset` must be a string, found an array
             --> /home/me/titan.toml:6:11
              |
            6 | dataset = ["c4"]
              |           ^^^^^^ must be a string

            error: `optimizer.lr` must be a number, found a string
             --> /home/me/titan.toml:9:6
              |
            9 | lr = "3e-4"
              |      ^^^^^^ must be a number
              |
              = help: write it without quotes: lr = 3e-4

            error: `optimizer.name` must be a string, found an integer
              --> /home/me/titan.toml:10:8
               |
            10 | name = 1
               |        ^ must be a string

            error: `compile.enable` must be true or false, found a string
              --> /home/me/titan.toml:13:10
               |
            13 | enable = "true"
               |          ^^^^^^ must be true or false
               |
               = help: write it without quotes: enable = true

            error: `checkpoint.enable` must be true or false, found an integer
              --> /home/me/titan.toml:16:10
               |
            16 | enable = 1
               |          ^ must be true or false

            error: `lr_scheduler.warmup_steps` must be an integer, found a table
              --> /home/me/titan.toml:19:16
               |
            19 | warmup_steps = { steps = 1 }
               |                ^^^^^^^^^^^^^ must be an integer
        "#]],
    );
}

#[test]
fn nonsense_is_refused() {
    refused(
        r#"[training]
steps = -5
seq_len = 0
local_batch_size = 0
global_batch_size = 0
max_norm = 0.0
seed = -1

[optimizer]
lr = 0.0
beta1 = 1.0
beta2 = -0.5
eps = 0
weight_decay = -0.1

[lr_scheduler]
warmup_steps = -3
decay_ratio = 1.7
min_lr_factor = 5

[parallelism]
tensor_parallel_degree = -1
data_parallel_shard_degree = 0

[metrics]
log_freq = 0

[validation]
enable = true
steps = 0
"#,
        expect![[r#"
            error: `training.steps` must be at least 1, found -5
             --> /home/me/titan.toml:2:9
              |
            2 | steps = -5
              |         ^^ must be at least 1

            error: `training.seq_len` must be at least 1, found 0
             --> /home/me/titan.toml:3:11
              |
            3 | seq_len = 0
              |           ^ must be at least 1

            error: `training.local_batch_size` must be at least 1, found 0
             --> /home/me/titan.toml:4:20
              |
            4 | local_batch_size = 0
              |                    ^ must be at least 1

            error: `training.global_batch_size` must be at least 1, or -1
             --> /home/me/titan.toml:5:21
              |
            5 | global_batch_size = 0
              |                     ^ not a batch size
              |
              = help: -1 is one local batch for each data-parallel device

            error: `training.max_norm` must be greater than 0, found 0.0
             --> /home/me/titan.toml:6:12
              |
            6 | max_norm = 0.0
              |            ^^^ must be greater than 0

            error: `training.seed` must be at least 0, found -1
             --> /home/me/titan.toml:7:8
              |
            7 | seed = -1
              |        ^^ must be at least 0

            error: `optimizer.lr` must be a finite number greater than 0, found 0.0
              --> /home/me/titan.toml:10:6
               |
            10 | lr = 0.0
               |      ^^^ must be a finite number greater than 0

            error: `optimizer.beta1` must be at least 0 and below 1, found 1.0
              --> /home/me/titan.toml:11:9
               |
            11 | beta1 = 1.0
               |         ^^^ must be at least 0 and below 1

            error: `optimizer.beta2` must be at least 0 and below 1, found -0.5
              --> /home/me/titan.toml:12:9
               |
            12 | beta2 = -0.5
               |         ^^^^ must be at least 0 and below 1

            error: `optimizer.eps` must be a finite number greater than 0, found 0
              --> /home/me/titan.toml:13:7
               |
            13 | eps = 0
               |       ^ must be a finite number greater than 0

            error: `optimizer.weight_decay` must be a finite number, 0 or greater, found -0.1
              --> /home/me/titan.toml:14:16
               |
            14 | weight_decay = -0.1
               |                ^^^^ must be a finite number, 0 or greater

            error: `lr_scheduler.warmup_steps` must be at least 0, found -3
              --> /home/me/titan.toml:17:16
               |
            17 | warmup_steps = -3
               |                ^^ must be at least 0

            error: `lr_scheduler.decay_ratio` must be from 0 to 1, found 1.7
              --> /home/me/titan.toml:18:15
               |
            18 | decay_ratio = 1.7
               |               ^^^ must be from 0 to 1

            error: `lr_scheduler.min_lr_factor` must be from 0 to 1, found 5
              --> /home/me/titan.toml:19:17
               |
            19 | min_lr_factor = 5
               |                 ^ must be from 0 to 1

            error: `parallelism.tensor_parallel_degree` must be at least 1, found -1
              --> /home/me/titan.toml:22:26
               |
            22 | tensor_parallel_degree = -1
               |                          ^^ must be at least 1

            error: `parallelism.data_parallel_shard_degree` must be at least 1, or -1
              --> /home/me/titan.toml:23:30
               |
            23 | data_parallel_shard_degree = 0
               |                              ^ not a degree
               |
               = help: write 1 to switch it off, -1 for all devices that are left

            error: `metrics.log_freq` must be at least 1, found 0
              --> /home/me/titan.toml:26:12
               |
            26 | log_freq = 0
               |            ^ must be at least 1

            error: `validation.steps` must be at least 1, or -1
              --> /home/me/titan.toml:30:9
               |
            30 | steps = 0
               |         ^ no steps
               |
               = help: -1 is all records
        "#]],
    );
}

#[test]
fn numbers_that_are_none_are_refused() {
    refused(
        "[optimizer]\nlr = nan\nweight_decay = inf\n",
        expect![[r#"
        error: `optimizer.lr` must be a finite number greater than 0, found nan
         --> /home/me/titan.toml:2:6
          |
        2 | lr = nan
          |      ^^^ must be a finite number greater than 0

        error: `optimizer.weight_decay` must be a finite number, 0 or greater, found inf
         --> /home/me/titan.toml:3:16
          |
        3 | weight_decay = inf
          |                ^^^ must be a finite number, 0 or greater
    "#]],
    );
    refused(
        "[training]\nsteps = 99999999999999999999\n",
        expect![[r#"
        error: `training.steps` must be at most 1000000000, found 99999999999999999999
         --> /home/me/titan.toml:2:9
          |
        2 | steps = 99999999999999999999
          |         ^^^^^^^^^^^^^^^^^^^^ must be at most 1000000000
    "#]],
    );
}

#[test]
fn words_come_from_a_list() {
    refused(
        "[optimizer]\nname = \"Lion\"\n[lr_scheduler]\ndecay_type = \"cosin\"\n\
         [activation_checkpoint]\nmode = \"fulll\"\n[training]\nmixed_precision_param = \"float16\"\n",
        expect![[r#"
            error: `optimizer.name` has no choice "Lion"
             --> /home/me/titan.toml:2:8
              |
            2 | name = "Lion"
              |        ^^^^^^ unknown choice
              |
              = help: allowed: "AdamW", "Adam", "Muon", "DistMuon", "SGD"

            error: `lr_scheduler.decay_type` has no choice "cosin"
             --> /home/me/titan.toml:4:14
              |
            4 | decay_type = "cosin"
              |              ^^^^^^^ unknown choice
              |
              = help: did you mean "cosine"? allowed: "linear", "sqrt", "cosine"

            error: `activation_checkpoint.mode` has no choice "fulll"
             --> /home/me/titan.toml:6:8
              |
            6 | mode = "fulll"
              |        ^^^^^^^ unknown choice
              |
              = help: did you mean "full"? allowed: "selective", "full", "memory_budget", "none"

            error: `training.mixed_precision_param` has no choice "float16"
             --> /home/me/titan.toml:8:25
              |
            8 | mixed_precision_param = "float16"
              |                         ^^^^^^^^^ unknown choice
              |
              = help: did you mean "bfloat16"? allowed: "bfloat16", "float32"
        "#]],
    );
}

#[test]
fn models_that_titan_tpu_does_not_have_are_refused() {
    refused(
        "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n",
        expect![[r#"
        error: `model.name` = "deepseek_v3" is not a model of titan-tpu
         --> /home/me/titan.toml:2:8
          |
        2 | name = "deepseek_v3"
          |        ^^^^^^^^^^^^^ no such model
          |
          = help: models that can be imported: "llama3", "qwen3", "flux"
    "#]],
    );
    refused(
        "[model]\nname = \"llama3\"\nflavor = \"9B\"\n",
        expect![[r#"
        error: `model.flavor` = "9B" is not a flavor of llama3
         --> /home/me/titan.toml:3:10
          |
        3 | flavor = "9B"
          |          ^^^^ no such flavor
          |
          = help: flavors of llama3: "debugmodel", "1B", "3B", "8B", "70B", "405B"
    "#]],
    );
    refused(
        "[model]\nname = \"flux\"\n",
        expect![[r#"
        error: `model.name` = "flux" needs `model.flavor`
         --> /home/me/titan.toml:2:8
          |
        2 | name = "flux"
          |        ^^^^^^ no such flavor
          |
          = help: flavors of flux: "flux-dev", "flux-schnell", "flux-debug"
    "#]],
    );
    refused(
        "[model]\nname = \"\"\nflavor = \"\"\n",
        expect![[r#"
        error: `model.name` is empty
         --> /home/me/titan.toml:2:8
          |
        2 | name = ""
          |        ^^ no name
          |
          = help: for example: "llama3"

        error: `model.flavor` is empty
         --> /home/me/titan.toml:3:10
          |
        3 | flavor = ""
          |          ^^ no name
          |
          = help: for example: "debugmodel"
    "#]],
    );
    refused(
        "[model]\nname = 3\nflavor = \"flux-dev\"\n",
        expect![[r#"
        error: `model.name` must be a string, found an integer
         --> /home/me/titan.toml:2:8
          |
        2 | name = 3
          |        ^ must be a string
    "#]],
    );
}

#[test]
fn experts_must_fit_the_devices() {
    refused(
        "model = { name = 'qwen3', flavor = '30B-A3B' }\n[parallelism]\n\
         data_parallel_shard_degree = 8\nexpert_parallel_degree = 3\n",
        expect![[r#"
            error: `parallelism.expert_parallel_degree` = 3 does not divide shard x context x tensor = 8
             --> /home/me/titan.toml:4:26
              |
            4 | expert_parallel_degree = 3
              |                          ^ must divide 8
              |
              = help: experts are spread over these 8 devices in equal groups
        "#]],
    );
}

#[test]
fn degrees_of_a_slipped_keyboard_are_refused() {
    refused(
        "[parallelism]\ntensor_parallel_degree = 800000\ncontext_parallel_degree = 800000\n\
         data_parallel_replicate_degree = 999999\nexpert_parallel_degree = 524287\n",
        expect![[r#"
            error: `parallelism.tensor_parallel_degree` is one of the degrees that need 639999360000000000 devices
             --> /home/me/titan.toml:2:26
              |
            2 | tensor_parallel_degree = 800000
              |                          ^^^^^^ at most 1048576 devices
        "#]],
    );
}

#[test]
fn tables_must_be_tables() {
    refused(
        "training = 5\n[[model]]\nname = \"llama3\"\n",
        expect![[r#"
        error: `training` must be a table, found an integer
         --> /home/me/titan.toml:1:12
          |
        1 | training = 5
          |            ^ must be a table
          |
          = help: write its header with single brackets: [training]

        error: `model` must be a table, found an array
         --> /home/me/titan.toml:2:1
          |
        2 | [[model]]
          | ^^^^^^^^^ must be a table
          |
          = help: write its header with single brackets: [model]
    "#]],
    );
}

#[test]
fn broken_toml_is_refused() {
    refused(
        "[training]\nsteps = 10\nsteps = 20\nseq_len 2048\n",
        expect![[r#"
        error: invalid TOML: the key `steps` is there twice
         --> /home/me/titan.toml:3:1
          |
        2 | steps = 10
          | ----- first here
        3 | steps = 20
          | ^^^^^ again
          |
          = help: keep one of the two

        error: invalid TOML: a key without `=`
         --> /home/me/titan.toml:4:9
          |
        4 | seq_len 2048
          |         ^ expected `=`
    "#]],
    );
}

#[test]
fn a_recipe_is_no_torchtitan_configuration() {
    refused(
        "version = 1\nname = \"a\"\n\n[model]\nfamily = \"llama3\"\nsize = \"8b\"\n",
        expect![[r#"
            error: this is a recipe of titan-tpu already
             --> /home/me/titan.toml:1:11
              |
            1 | version = 1
              |           ^ TorchTitan configurations have no version
              |
              = help: train it as it is: titan-tpu train /home/me/titan.toml
        "#]],
    );
}

#[test]
fn a_text_of_something_else_is_refused() {
    refused(
        "",
        expect![[r#"
        error: this is not a TorchTitan configuration: it has none of its tables
        --> /home/me/titan.toml
         = help: TorchTitan (0.2.2 and older) has tables such as [job], [model], [training]
    "#]],
    );
    refused(
        "[tool.poetry]\nname = \"x\"\n",
        expect![[r#"
        error: this is not a TorchTitan configuration: it has none of its tables
        --> /home/me/titan.toml
         = help: TorchTitan (0.2.2 and older) has tables such as [job], [model], [training]
    "#]],
    );
}
