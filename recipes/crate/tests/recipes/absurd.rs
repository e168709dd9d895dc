//! Inputs that nobody writes by hand: answers stay short, come soon, and the stack holds.

use std::time::{Duration, Instant};

use expect_test::expect;
use titan_recipes::{Loaded, Report};

use crate::support::{SOUND, check, edited, load, said};

/// Loads a text and renders what is said, on a stack that is smaller than any thread of ours has, and checks that
/// nobody has to wait or to scroll. The limit is for a debug build on a busy machine.
fn bearable(name: &str, text: String) {
    let loading = move || -> (Result<Loaded, Report>, String, Duration) {
        let start = Instant::now();
        let result = load(&text, &[]);
        let text = said(&result);
        (result, text, start.elapsed())
    };
    let thread = std::thread::Builder::new().stack_size(1 << 19).spawn(loading).unwrap();
    let (result, text, took) = thread.join().unwrap_or_else(|_| panic!("{name} panics"));
    assert!(result.is_err(), "{name} is no recipe");
    assert!(text.len() < 20_000, "{name} is answered with {} bytes", text.len());
    assert!(took < Duration::from_secs(20), "{name} takes {took:?}");
}

/// Enough for anything that grows with the square of a text to be noticed.
const SIZE: usize = 1 << 16;

#[test]
fn repeated_patterns() {
    let patterns = [
        "a", "=", "[", "[[", "{", "\"", "'", "\"\"\"", "\n", "\r", "\t", ".", ",", "\0", "\u{1}",
        "#", "a=", "a=[", "x={a=", "[a]\n", "[[a]]\n", "a=1\n", "a.", "\u{feff}", "😀", "\"\\u",
        "a:\n", "-", "1", "{}",
    ];
    for pattern in patterns {
        bearable(pattern, pattern.repeat(SIZE / pattern.len()));
    }
}

#[test]
fn deep_nesting() {
    let n = SIZE / 4;
    bearable("arrays", format!("x = {}{}", "[".repeat(n), "]".repeat(n)));
    bearable("tables", format!("x = {}1{}", "{a=".repeat(n), "}".repeat(n)));
    bearable("dotted keys", format!("x{} = 1", ".x".repeat(n)));
    bearable("headers", format!("[x{}]", ".x".repeat(n)));
    let legal = format!(
        "{SOUND}[x{}]\nx{} = {}{}\n",
        ".x".repeat(75),
        ".x".repeat(75),
        "[".repeat(75),
        "]".repeat(75)
    );
    bearable("what TOML allows", legal);
}

#[test]
fn words_without_end() {
    let long = "n".repeat(300_000);
    bearable("key", format!("{SOUND}{long} = 1\n"));
    bearable("table", format!("{SOUND}[{long}]\n"));
    bearable("value", edited(&[("\"cpu\"", &format!("\"{long}\""))]));
    bearable("number", edited(&[("steps = 20", &format!("steps = {}", "9".repeat(300_000)))]));
    bearable("path", edited(&[("data.txt", &long)]));
    bearable("name", edited(&[("small", &long)]));
    bearable("comment", edited(&[("steps = 20", &format!("steps = 0 # {long}"))]));
}

#[test]
fn a_hundred_thousand_keys() {
    let lines = |line: fn(u32) -> String| (0..100_000).map(line).collect::<String>();
    bearable("unknown keys", format!("{SOUND}{}", lines(|n| format!("k{n} = 1\n"))));
    bearable("unknown keys of the top", format!("{}{SOUND}", lines(|n| format!("k{n} = 1\n"))));
    bearable("unknown tables", format!("{SOUND}{}", lines(|n| format!("[t{n}]\n"))));
}

#[test]
fn many_of_everything() {
    let lines = |line: fn(u32) -> String| (0..20_000).map(line).collect::<String>();
    bearable("unknown keys instead of known ones", lines(|n| format!("k{n} = 1\n")));
    bearable("keys that are there twice", format!("{SOUND}{}", lines(|_| "a = 1\n".to_owned())));
    bearable("dotted keys", format!("{SOUND}{}", lines(|n| format!("a.b{n}.c = 1\n"))));
    let sources =
        |source: &str| edited(&[("{ path", &format!("{}{{ path", source.repeat(10_000)))]);
    bearable("missing data files", sources("{path=\"a\"},"));
    bearable("sources without path", sources("{},"));
    bearable("sources with a misspelled path", sources("{pth=1},"));
    bearable("sources that are none", sources("5,"));
}

#[test]
fn the_first_problems_are_shown_and_the_others_counted() {
    let text = (0..30)
        .fold(edited(&[("steps = 20", "steps = 0")]), |text, n| format!("{text}zzz{n} = 1\n"));
    let result = load(&text, &[]);
    let report = result.as_ref().unwrap_err();
    assert_eq!((report.diagnostics.len(), report.hidden, report.errors()), (20, 11, 31));
    let text = said(&result);
    assert!(text.starts_with("error: `training.steps` must be at least 1"), "{text}");
    assert!(text.contains("unknown key `zzz18`"), "{text}");
    assert!(!text.contains("unknown key `zzz19`"), "{text}");
    assert!(text.ends_with("note: 11 more problems, shown when these are solved"), "{text}");
}

#[test]
fn problems_all_over_the_recipe_are_counted() {
    let sources = "{ path = \"date.txt\" }, ".repeat(25);
    let mut text = edited(&[
        ("{ path = \"data.txt\" }", &sources),
        ("devices = 2", "devices = 2\nx = 1\ny = 2"),
    ]);
    text = text.replacen("version = 1", "version = 1\na = 1\nb = 1", 1);
    let report = load(&text, &[]).unwrap_err();
    let lines = report.diagnostics.iter().map(|d| d.at.as_ref().unwrap().span.start);
    assert!(lines.is_sorted());
    assert_eq!((report.diagnostics.len(), report.hidden), (20, 9));
}

#[test]
fn overrides_without_measure() {
    let deep = format!("training{}=word", ".a".repeat(60_000));
    let set = [deep.as_str(), &"a".repeat(100_000), &format!("x={}", "[".repeat(100_000))];
    let text = said(&load(SOUND, &set));
    assert!(text.len() < 20_000);
}

#[test]
fn a_value_that_is_a_whole_page() {
    check(
        &edited(&[("steps = 20", &format!("steps = \"\"\"{}\"\"\"", "line\n".repeat(100)))]),
        expect![[r#"
            error: `training.steps` must be an integer, found a string
              --> r.toml:18:9
               |
            18 | steps = """line
               |         ^^^^^^^ must be an integer
               |
               = help: allowed: 1 to 1000000000
        "#]],
    );
}
