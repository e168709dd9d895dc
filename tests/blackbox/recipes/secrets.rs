//! Secrets of a recipe are in nothing that is printed.

use std::fs;

use crate::recipes::append;
use crate::support::Bench;

const SECRET: &str = "hush-hush-17";

/// Runs a command, which may fail, and looks for the secret in everything that it prints.
#[track_caller]
fn silent(bench: &Bench, arguments: &[&str]) -> String {
    let done = bench.run(arguments);
    let all = format!("{}{}", done.stdout, done.stderr);
    assert!(!all.contains("hush"), "{arguments:?} shows the secret:\n{all}");
    assert!(!all.contains("panicked"), "{all}");
    all
}

/// The small recipe with secrets of both kinds and with one more edit.
fn secret(bench: &Bench, from: &str, to: &str) {
    let address = format!("s3://key:{SECRET}@bucket/x?X-Amz-Signature={SECRET}");
    append(bench, "s.toml", &format!("\n[env]\nTOKEN = \"{SECRET}\"\n"));
    let text = fs::read_to_string(bench.path("s.toml")).unwrap();
    let text = text.replace("data.txt", &address);
    assert!(text.contains(from), "the recipe has no {from:?}");
    bench.write("s.toml", &text.replacen(from, to, 1));
}

#[test]
fn a_sound_recipe_never_shows_its_secrets() {
    let bench = Bench::new();
    secret(&bench, "", "");
    for command in [
        &["recipe", "check", "s.toml"][..],
        &["recipe", "check", "s.toml", "--json"],
        &["recipe", "show", "s.toml"],
        &["recipe", "show", "s.toml", "--json"],
        &["recipe", "diff", "s.toml", "r.toml"],
        &["recipe", "diff", "s.toml", "r.toml", "--json"],
        &["plan", "s.toml"],
        &["plan", "s.toml", "--json"],
        &["mfu", "s.toml", "--tokens-per-second-per-device", "5"],
        &["train", "s.toml"],
        &["train", "s.toml", "--dry-run"],
        &["train", "s.toml", "--json"],
        &["data", "show", "s.toml"],
        &["data", "verify", "s.toml"],
    ] {
        silent(&bench, command);
    }
    assert!(silent(&bench, &["recipe", "show", "s.toml"]).contains("TOKEN = \"********\""));
}

#[test]
fn mistakes_beside_a_secret_do_not_show_it() {
    let bench = Bench::new();
    let token = format!("TOKEN = \"{SECRET}\"");
    for to in [
        format!("TOKEN = 5\n{token}\nRANK = \"{SECRET}\""),
        format!("A-B = \"x\"\n{token}\n1 = \"{SECRET}\""),
        format!("TOKEN = [\"{SECRET}\"]"),
        format!("TOKEN = {{ form = \"{SECRET}\" }}"),
        format!("TOKEN.DEEP = \"{SECRET}\""),
        format!("TOKEN = \"\"\"\n{SECRET}\n\"\"\"\nB = 1"),
    ] {
        secret(&bench, &token, &to);
        for command in
            [&["recipe", "check", "s.toml"][..], &["recipe", "check", "s.toml", "--json"]]
        {
            silent(&bench, command);
            bench.run(command).expect(2);
        }
    }
    let source = "sources = [{ path";
    for (from, to) in [
        ("[data]", "[data]\ntokeniser = 1"),
        (source, "sources = [{ path = \"nowhere.txt\" }, { path"),
        (source, "sources = [{ weight = 0, path"),
        (source, "sources = [{ url"),
        ("s3://", "http://"),
        ("[env]", "[evn]"),
        ("[env]", "[environment]"),
        ("[env]", "[[env]]"),
    ] {
        secret(&bench, from, to);
        for command in [
            &["recipe", "check", "s.toml"][..],
            &["recipe", "check", "s.toml", "--json"],
            &["train", "s.toml"],
        ] {
            silent(&bench, command);
            bench.run(command).expect(2);
        }
    }
}

#[test]
fn errors_of_syntax_do_not_show_a_secret() {
    let bench = Bench::new();
    let token = format!("TOKEN = \"{SECRET}\"");
    for to in [
        format!("TOKEN = \"{SECRET}"),
        format!("TOKEN = {SECRET}"),
        format!("TOKEN \"{SECRET}\""),
        format!("TOKEN: \"{SECRET}\""),
        format!("\"{SECRET}\""),
        format!("TOKEN = \"a\" \"{SECRET}\""),
        format!("TOKEN = \"x\\q{SECRET}\""),
        format!("TOKEN = '{SECRET}"),
        format!("TOKEN = {{ from = \"{SECRET}\""),
        format!("TOKEN = \"\"\"\n{SECRET}\n"),
        format!("x\n{token}\ny"),
        format!("# {token}\n= \"{SECRET}\""),
    ] {
        secret(&bench, &token, &to);
        for command in [
            &["recipe", "check", "s.toml"][..],
            &["recipe", "check", "s.toml", "--json"],
            &["train", "s.toml"],
        ] {
            silent(&bench, command);
            bench.run(command).expect(2);
        }
    }
    let inline = format!("env = {{ TOKEN = \"{SECRET}\", }}\n[model");
    secret(&bench, "[model", &inline);
    silent(&bench, &["recipe", "check", "s.toml"]);
}

#[test]
fn a_secret_on_the_command_line_is_not_repeated() {
    let bench = Bench::new();
    for set in [
        format!("env.TOKEN={SECRET}"),
        format!("env.TOKEN=[\"{SECRET}\"]"),
        format!("env.TOKEN=\"{SECRET}"),
        format!("env.A-B={SECRET}"),
        format!("env={SECRET}"),
        format!("data.tokenizer=https://me:{SECRET}@host/x.json"),
    ] {
        silent(&bench, &["recipe", "check", "r.toml", "--set", &set]);
        silent(&bench, &["recipe", "show", "r.toml", "--set", &set]);
    }
}

#[test]
fn secrets_of_a_recipe_that_is_extended_are_not_shown() {
    let bench = Bench::new();
    secret(&bench, "[env]", "[env]\nA-B = \"x\"");
    bench.write("child.toml", "extends = \"s.toml\"\n");
    silent(&bench, &["recipe", "check", "child.toml"]);
    secret(&bench, "", "");
    for command in ["check", "show"] {
        silent(&bench, &["recipe", command, "child.toml"]);
        bench.run(&["recipe", command, "child.toml"]).expect(0);
    }
}

#[test]
fn a_secret_with_a_line_like_a_header_is_not_shown() {
    let bench = Bench::new();
    let token = format!("TOKEN = \"{SECRET}\"");
    for to in [
        format!("TOKEN = \"\"\"\na\n[b]\n{SECRET} \\q\n\"\"\""),
        format!("TOKEN = [\n[1],\n\"{SECRET}\" x\n]"),
    ] {
        secret(&bench, &token, &to);
        silent(&bench, &["recipe", "check", "s.toml"]);
    }
}

#[test]
fn an_address_with_a_space_in_it_does_not_show_its_password() {
    let bench = Bench::new();
    secret(&bench, "s3://", "s3:// ");
    silent(&bench, &["recipe", "check", "s.toml"]);
}

#[test]
fn the_source_of_a_recipe_is_shown_without_its_secrets() {
    let bench = Bench::new();
    secret(&bench, "", "");
    silent(&bench, &["recipe", "show", "--source", "s.toml"]);
}

#[test]
fn a_password_of_any_characters_is_not_shown() {
    // Secret keys of S3 often have a slash or a plus in them.
    let bench = Bench::new();
    for password in ["a/hush", "a,hush", "a'hush", "a}hush", "a]hush", "a#hush", "a?hush"] {
        bench.edit("data.txt", &format!("s3://key:{password}@bucket/x"));
        silent(&bench, &["recipe", "show", "r.toml"]);
        silent(&bench, &["recipe", "check", "r.toml", "--set", "training.steps=0"]);
        bench.edit("data.txt\" }]", &format!("s3://key:{password}@bucket/x\", weight = 0 }}]"));
        silent(&bench, &["recipe", "check", "r.toml"]);
    }
}
