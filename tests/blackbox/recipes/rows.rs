//! Recipes with one mistake each, and what a user needs to read about it.

/// A mistake in the small recipe of the bench.
pub(super) struct Row {
    /// The text to replace; empty to add to the end of the recipe.
    pub(super) from: &'static str,
    /// What to write instead.
    pub(super) to: &'static str,
    /// Line and column of the mistake.
    pub(super) place: &'static str,
    /// Parts of the message and of the help.
    pub(super) says: [&'static str; 2],
}

const fn row(
    from: &'static str,
    to: &'static str,
    place: &'static str,
    says: [&'static str; 2],
) -> Row {
    Row { from, to, place, says }
}

pub(super) const SYNTAX: &[Row] = &[
    row("[model]", "[model", "4:7", ["invalid TOML", "expected `]`"]),
    row("\"llama3\"", "llama3", "5:10", ["a string needs quotes", "write \"llama3\""]),
    row("\"llama3\"", "\"llama3", "5:17", ["the string does not end", "\""]),
    row("steps = 6", "steps 6", "18:", ["invalid TOML", "="]),
    row("steps = 6", "steps =", "18:", ["invalid TOML", "value"]),
    row("steps = 6", "steps: 6", "18:", ["invalid TOML", "="]),
    row("steps = 6", "steps = 6\nsteps = 7", "19:1", ["steps", "twice"]),
    row("", "\n[model]\n", "30:", ["model", "twice"]),
    row("= 0.5", "= .5", "25:17", ["invalid TOML", "0.5"]),
    row("= 0.5", "= 0,5", "25:", ["invalid TOML", "0"]),
    row("devices = 2", "devices = 02", "15:11", ["invalid TOML", "zero"]),
    row("\"data.txt\" }]", "\"data.txt\" }", "28:", ["invalid TOML", "]"]),
    row("\"data.txt\" }]", "\"data.txt\" ]", "28:32", ["invalid TOML", "inline table"]),
    row("", "\n[compile]\nenabled = True\n", "31:11", ["invalid TOML", "true"]),
    row("\"small\"", "\"sm\\all\"", "2:", ["escape", "`\\\\`"]),
];

pub(super) const KINDS: &[Row] = &[
    row("steps = 6", "steps = \"6\"", "18:9", ["found a string", "remove the quotes: steps = 6"]),
    row("steps = 6", "steps = 6.5", "18:9", ["must be an integer, found a float", "write steps ="]),
    row("steps = 6", "steps = true", "18:9", ["found a boolean", "allowed: 1 to"]),
    row("steps = 6", "steps = 2026-01-01", "18:9", ["found a date", "allowed: 1 to"]),
    row("\"small\"", "5", "2:8", ["`name` must be a string", "put it in quotes: name = \"5\""]),
    row(
        "= 0.5",
        "= \"0.5\"",
        "25:17",
        ["must be a number", "remove the quotes: learning_rate = 0.5"],
    ),
    row(
        "[optimizer]",
        "[optimizer]\nbetas = 0.9",
        "24:9",
        ["array of 2 numbers", "betas = [0.9, 0.95]"],
    ),
    row("[optimizer]", "[optimizer]\nbetas = [0.9]", "24:9", ["found 1 of them", "[0.9, 0.95]"]),
    row("[{ path = \"data.txt\" }]", "\"data.txt\"", "28:11", ["must be an array", "[{ path ="]),
    row(
        "[{ path = \"data.txt\" }]",
        "[\"data.txt\"]",
        "28:12",
        ["must be a table", "{ path = \"data.txt\" }"],
    ),
    row("[{ path = \"data.txt\" }]", "[]", "28:11", ["is empty", "for example"]),
    row("[{ path = \"data.txt\" }]", "[{ weight = 1 }]", "28:12", ["no `path`", "path = "]),
    row("[hardware]", "[[hardware]]", "13:", ["must be a table, found an array", "[hardware]"]),
    row(
        "",
        "\n[metrics]\ntensorboard = \"yes\"\n",
        "31:15",
        ["true or false", "tensorboard = true"],
    ),
];

pub(super) const RANGES: &[Row] = &[
    row("steps = 6", "steps = 0", "18:9", ["must be at least 1, found 0", "allowed: 1 to"]),
    row("steps = 6", "steps = -6", "18:9", ["must be at least 1, found -6", "allowed: 1 to"]),
    row("steps = 6", "steps = 9_999_999_999_999_999_999_999", "18:9", ["at most", "allowed: 1 to"]),
    row("= 0.5", "= 0", "25:17", ["must be greater than 0, found 0", "learning_rate"]),
    row("= 0.5", "= nan", "25:17", ["must be greater than 0, found nan", "learning_rate"]),
    row("= 0.5", "= 1e-60", "25:17", ["float32", "1e-60"]),
    row("devices = 2", "devices = -1", "15:11", ["at least 1", "devices = \"auto\""]),
    row("devices = 2", "devices = 100000", "15:11", ["at most 1024", "allowed: 1 to 1024"]),
    row("[training]", "[training]\nseed = -1", "18:8", ["at least 0, found -1", "allowed: 0 to"]),
    row("[training]", "[training]\ngradient_clip = 0", "18:17", ["greater than 0", "\"none\""]),
    row("[optimizer]", "[optimizer]\nbetas = [0.9, 1.0]", "24:15", ["betas[1]", "below 1"]),
    row("", "\n[elastic]\ngrace_seconds = 7200\n", "31:17", ["at most 3600", "allowed: 1 to 3600"]),
    row("", "\n[checkpoint]\nkeep_last = 0\n", "31:13", ["at least 1, found 0", "allowed: 1 to"]),
    row("", "\n[schedule]\nfinal_fraction = 10\n", "31:18", ["from 0 to 1", "found 10"]),
    row("[training]", "[training]\nz_loss = -1", "18:10", ["z_loss", "0 or greater, found -1"]),
    row(
        "",
        "\n[parallelism]\nexpert_capacity_factor = 0.5\n",
        "31:26",
        ["at least 1, found 0.5", "\"dropless\""],
    ),
    row("[data]", "[data]\ndocument_end = -1", "28:16", ["at least 0, found -1", "allowed: 0 to"]),
];

pub(super) const CHOICES: &[Row] = &[
    row("\"llama3\"", "\"llama-3\"", "5:10", ["no choice \"llama-3\"", "did you mean \"llama3\"?"]),
    row("\"cpu\"", "\"TPU\"", "14:15", ["no choice \"TPU\"", "did you mean \"tpu7x\"?"]),
    row("\"sgd\"", "\"adam\"", "24:8", ["no choice \"adam\"", "did you mean \"adamw\"?"]),
    row("\"sgd\"", "\"lion\"", "24:8", ["no choice \"lion\"", "\"adamw\", \"muon\", \"sgd\""]),
    row("", "\n[schedule]\nkind = \"cosin\"\n", "31:8", ["no choice", "did you mean \"cosine\"?"]),
    row(
        "",
        "\n[precision]\ncompute = \"bf16\"\n",
        "31:11",
        ["no choice", "did you mean \"bfloat16\"?"],
    ),
    row(
        "",
        "\n[remat]\npolicy = \"selectiv\"\n",
        "31:10",
        ["no choice", "did you mean \"selective\"?"],
    ),
    row("", "\n[launch]\non = \"k8s\"\n", "31:6", ["no choice \"k8s\"", "\"gke\""]),
    row("[model]", "[model]\nsize = \"9b\"", "5:8", ["no choice \"9b\"", "\"8b\""]),
    row("[training]", "[training]\nattention = \"sdpa\"", "18:13", ["sdpa", "mean \"fused\"?"]),
];

pub(super) const KEYS: &[Row] = &[
    row(
        "sequence_length",
        "sequence_lenght",
        "19:1",
        ["unknown key", "did you mean `sequence_length`?"],
    ),
    row("sequence_length", "seq_len", "19:1", ["unknown key", "did you mean `sequence_length`?"]),
    row("learning_rate", "lr", "25:1", ["unknown key `lr`", "did you mean `learning_rate`?"]),
    row("[optimizer]", "[optimiser]", "23:2", ["unknown table [optimiser]", "`optimizer`"]),
    row(
        "[training]",
        "[training]\nweight_decay = 0",
        "18:1",
        ["unknown key", "belongs to [optimizer]"],
    ),
    row("[model]", "seed = 1\n[model]", "4:1", ["unknown key `seed`", "belongs to [training]"]),
    row("[data]", "[data]\nversion = 1", "28:1", ["unknown key", "top of the recipe"]),
    row("", "\n[fsdp]\nsize = 2\n", "30:2", ["unknown table [fsdp]", "parallelism"]),
    row("[model]", "[model]\nnum_experts = 8", "5:1", ["num_experts", "qwen3-moe"]),
    row("[model]", "[model]\nload_balancing = \"bias\"", "5:1", ["load_balancing", "qwen3-moe"]),
    row("", "\n[flux]\nimage_size = 64\n", "30:2", ["[flux]", "llama3"]),
    row(
        "[training]",
        "[training]\ncolour = 1",
        "18:1",
        ["unknown key `colour`", "the keys of [training]"],
    ),
];

pub(super) const MISSING: &[Row] = &[
    row("version = 1", "", "", ["no `version`", "version = 1"]),
    row("steps = 6", "", "17:2", ["no `steps`", "steps ="]),
    row("learning_rate = 0.5", "", "23:2", ["no `learning_rate`", "learning_rate ="]),
    row("[data]\nsources = [{ path = \"data.txt\" }]", "", "", ["no table [data]", "sources ="]),
    row("hidden_size = 32", "", "4:2", ["no `hidden_size`", "hidden_size ="]),
    row("\"cpu\"\ndevices = 2", "\"v5e\"", "13:2", ["no `topology`", "topology = \""]),
    row("", "\n[validation]\n", "30:2", ["no `interval_steps`", "sources ="]),
    row(
        "",
        "\n[rl]\nmax_prompt_length = 8\nmax_response_length = 8\n",
        "30:2",
        ["no `reward`", "reward ="],
    ),
    row("", "\n[schedule]\nkind = \"wsd\"\n", "30:2", ["no `decay_steps`", "decay_steps ="]),
];

pub(super) const RULES: &[Row] = &[
    row(
        "num_heads = 4",
        "num_heads = 5",
        "10:13",
        ["not a multiple", "nearest values of num_heads"],
    ),
    row(
        "num_kv_heads = 2",
        "num_kv_heads = 3",
        "11:16",
        ["not a multiple", "nearest values of num_kv_heads: 1, 2, 4"],
    ),
    row("vocab_size = 256", "vocab_size = 100", "6:14", ["256 ids", "vocab_size = 256"]),
    row("global_batch = 4", "global_batch = 5", "21:16", ["local_batch 1 x 2 devices", "4, 6"]),
    row("", "\n[parallelism]\nreplicate = 3\n", "31:13", ["not a multiple of replicate 3", "1, 2"]),
    row("", "\n[parallelism]\nshard = 4\n", "31:9", ["not the world of 2 devices", "shard = 2"]),
    row("", "\n[parallelism]\nexpert = 2\n", "31:10", ["no experts", "leave expert out"]),
    row(
        "[training]",
        "[training]\ndocument_mask = true",
        "18:17",
        ["without `data.document_end`", "document_end = 0"],
    ),
    row("[data]", "[data]\ndocument_end = 256", "28:16", ["vocab_size` = 256", "0 to 255"]),
    row("[data]", "[data]\ndocument_end = \"<s>\"", "28:16", ["is no byte", "document_end = 0"]),
    row(
        "\"data.txt\" }",
        "\"data.txt\", prompt_field = \"p\" }",
        "28:48",
        ["without `response_field`", "add response_field ="],
    ),
    row(
        "\"data.txt\" }",
        "\"data.txt\" }, { path = \"data.txt\", weight = 2 }",
        "28:12",
        ["has no weight", "add weight = 1.0"],
    ),
    row(
        "",
        "\n[validation]\ninterval_steps = 1\nfraction = 0.1\nsources = [{ path = \"data.txt\" }]\n",
        "32:12",
        ["together with `validation.sources`", "keep one of: sources, fraction"],
    ),
    row(
        "devices = 2",
        "devices = 4\n[parallelism]\ntensor = 4",
        "17:10",
        ["`model.num_kv_heads` = 2", "1, 2"],
    ),
    row(
        "sequence_length = 32\nlocal_batch = 1\nglobal_batch = 4",
        "sequence_length = 30\nlocal_batch = 1\nglobal_batch = 4\n[parallelism]\ncontext = 2",
        "19:19",
        ["not a multiple of 2 x context 2 = 4", "28, 32"],
    ),
    row(
        "",
        "\n[schedule]\nwarmup_steps = 60\n",
        "31:16",
        ["longer than the run of 6 steps", "warmup_steps ="],
    ),
    row("", "\n[elastic]\nmin_slices = 2\n", "31:14", ["hardware.slices", "min_slices = 1"]),
    row(
        "",
        "\n[checkpoint]\ninterval_steps = 1\ninterval_seconds = 1\n",
        "32:20",
        ["two intervals", "keep one of"],
    ),
    row(
        "",
        "\n[checkpoint]\nlocal_interval_steps = 1\n",
        "31:24",
        ["without `local_directory`", "local_directory ="],
    ),
    row("\"small\"", "\"../x\"", "2:8", ["cannot name a run folder", "for example: name = "]),
    row(
        "\"cpu\"\ndevices = 2",
        "\"v5e\"\ntopology = \"3x3\"",
        "15:12",
        ["no slice of v5e", "nearest: \""],
    ),
    row("\"cpu\"", "\"cpu\"\ntopology = \"2x2\"", "15:12", ["means nothing on cpu", "devices = 4"]),
    row(
        "\"cpu\"\ndevices = 2",
        "\"cpu\"\ndevices = 3\nslices = 2",
        "15:11",
        ["over 2 slices", "2, 4"],
    ),
];

pub(super) const PLACES: &[Row] = &[
    row(
        "version = 1",
        "version = 1\nextends = \"base.toml\"",
        "2:11",
        ["cannot extend `base.toml`", "no such file"],
    ),
    row(
        "version = 1",
        "version = 1\nextends = \"bad.toml\"",
        "2:11",
        ["extends itself", "bad.toml"],
    ),
    row("version = 1", "version = 1\nextends = \".\"", "2:11", ["cannot extend", "directory"]),
    row(
        "version = 1",
        "version = 1\nextends = 1",
        "2:11",
        ["the path of a recipe", "extends = \""],
    ),
    row("", "\n[env]\nRANK = \"0\"\n", "31:1", ["RANK", "titan-tpu itself"]),
    row("", "\n[env]\nTHREADS = 4\n", "31:11", ["must be a string", "put it in quotes"]),
    row("", "\n[env]\nA-B = \"x\"\n", "31:1", ["A-B", "letters, digits and `_`"]),
    row("data.txt", "http://host/data.txt", "28:21", ["cannot be at http://", "gs:// or s3://"]),
    row("data.txt", "file:///data.txt", "28:21", ["cannot be at file://", "\"/data.txt\""]),
    row("data.txt", "gs://", "28:21", ["needs a bucket", "gs://bucket/path"]),
    row("data.txt", "dat.txt", "28:21", ["no such file", "did you mean `data.txt`?"]),
    row("data.txt", "~/data.txt", "28:21", ["no such file", "`~` has no meaning here"]),
    row("data.txt", "*.jsonl", "28:21", ["it matches no file", "looked in"]),
    row("data.txt", "no/**/*.txt", "28:21", ["cannot read the data files", "there is no folder"]),
    row(
        "[data]",
        "[data]\ntokenizer = \"byte\"",
        "28:13",
        ["no choice \"byte\"", "did you mean \"bytes\"?"],
    ),
    row(
        "[data]",
        "[data]\ntokenizer = \"t.json\"",
        "28:13",
        ["cannot read the tokenizer `t.json`", "no such file"],
    ),
    row(
        "[model]",
        "[model]\ninit = \"weights\"",
        "5:8",
        ["cannot read config.json of the model folder", "no such file"],
    ),
    row(
        "",
        "\n[checkpoint]\ndirectory = \"~/c\"\n",
        "31:13",
        ["starts with `~`", "the whole path"],
    ),
    row(
        "",
        "\n[checkpoint]\ndirectory = \"/dev/null/c\"\n",
        "31:13",
        ["cannot be used", "/dev/null"],
    ),
];

/// Texts that are no recipe at all.
pub(super) const TEXTS: &[(&[u8], &str, [&str; 2])] = &[
    (b"", "", ["the recipe is empty", "recipes/llama3_tiny.toml"]),
    (b"# only words\n", "", ["the recipe is empty", "recipes/llama3_tiny.toml"]),
    (b"version = 2\n", ":1:11", ["version 1, not 2", "version = 1"]),
    (b"{\"version\": 1}\n", ":1:1", ["invalid TOML", "bad.toml"]),
    (b"version: 1\nmodel:\n  family: llama3\n", ":1:", ["invalid TOML", "="]),
    (
        b"[job]\ndump_folder = \"o\"\n[model]\nname = \"llama3\"\n",
        ":1:2",
        ["TorchTitan", "recipe import"],
    ),
    (b"version = 1\nname = \"\xff\"\n", "", ["byte 0xff at offset 20 (line 2)", "UTF-8"]),
    (b"\xff\xfev\0e\0r\0", "", ["UTF-16", "save it as UTF-8"]),
    (b"version = 1\0\n", ":1:", ["invalid TOML", "bad.toml"]),
];
