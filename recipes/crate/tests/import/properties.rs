//! Laws that hold for every configuration.

use proptest::prelude::*;
use titan_recipes::import::Target;

use crate::keys::{Fate, KEYS, MORE_KEYS, is_accounted_for};
use crate::support::{imported, imported_for, sound_for};

type Row = (&'static str, &'static str, Fate);

/// Some of the keys, each at most once, in any order.
fn some_keys() -> impl Strategy<Value = Vec<Row>> {
    let all: Vec<Row> = KEYS.iter().chain(MORE_KEYS).copied().collect();
    let count = all.len();
    prop::sample::subsequence(all, 0..count).prop_shuffle().prop_map(|rows| {
        let mut chosen: Vec<Row> = Vec::new();
        for row in rows {
            if chosen.iter().all(|(key, ..)| *key != row.0) {
                chosen.push(row);
            }
        }
        chosen
    })
}

fn target() -> impl Strategy<Value = Option<Target>> {
    let target = |accelerator: &str, topology: Option<&str>, devices| {
        let (accelerator, topology) = (accelerator.to_owned(), topology.map(str::to_owned));
        Some(Target { accelerator, topology, devices, slices: None })
    };
    prop_oneof![
        Just(None),
        Just(target("cuda", None, Some(16))),
        Just(target("cpu", None, None)),
        Just(target("v5p", Some("4x4x4"), None)),
    ]
}

fn text_of(rows: &[Row]) -> String {
    // Keys of no table come first, so that dotted keys do not open one for them.
    let mut lines: Vec<String> =
        rows.iter().map(|(key, value, _)| format!("{key} = {value}\n")).collect();
    lines.push("job.use_for_integration_test = false\n".to_owned());
    lines.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_key_is_in_the_recipe_or_in_a_note(rows in some_keys(), target in target()) {
        let text = text_of(&rows);
        let imported = sound_for(&text, target.as_ref());
        for (key, _, fate) in &rows {
            prop_assert!(
                is_accounted_for(key, *fate, &imported),
                "{key} is lost in\n{text}\n{}\n{:#?}", imported.recipe, imported.notes
            );
        }
    }

    /// A key alone decides: its order among the others does not.
    #[test]
    fn the_order_of_keys_means_nothing(rows in some_keys(), target in target()) {
        let settings = |recipe: &str| -> String {
            recipe.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
        };
        let mut sorted = rows.clone();
        sorted.sort_by_key(|(key, ..)| *key);
        let one = sound_for(&text_of(&rows), target.as_ref());
        let other = sound_for(&text_of(&sorted), target.as_ref());
        prop_assert_eq!(settings(&one.recipe), settings(&other.recipe));
        prop_assert_eq!(one.notes.len(), other.notes.len());
    }

    /// Numbers of any size, where TorchTitan takes numbers: a recipe or a report, but no crash.
    #[test]
    fn any_number_is_taken_or_refused(
        rows in prop::collection::vec((prop::sample::select(KEYS), any::<i64>(), any::<f64>(), 0..3), 0..12),
        target in target(),
    ) {
        let mut text = String::new();
        let mut seen = Vec::new();
        for ((key, _, _), integer, float, which) in rows {
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let value = match which {
                0 => integer.to_string(),
                1 => (integer >> 50).to_string(),
                _ => format!("{float:?}").replace("NaN", "nan"),
            };
            text.push_str(&format!("{key} = {value}\n"));
        }
        let result = imported_for(&text, target.as_ref());
        if let Err(report) = result {
            prop_assert!(report.errors() > 0);
            report.render(false);
        }
    }

    #[test]
    fn any_text_is_taken_or_refused(text in any::<String>(), key in "[a-z_.\"\\\\]{0,20}") {
        for text in [text.clone(), format!("[training]\n{key} = '''{text}'''\n")] {
            if let Err(report) = imported(&text) {
                report.render(false);
            }
        }
    }
}
