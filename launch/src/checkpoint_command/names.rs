//! Which tensors of others are the weights of a model.

use std::collections::BTreeMap;

/// What wrappers of modules put into names.
const WRAPPERS: [&str; 3] = ["_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"];

/// Names that are told apart here by what they lack.
const SHOWN: usize = 5;

/// The names of others for those of a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// By the name of the model.
    pub(super) names: BTreeMap<String, String>,
    /// What is before all of them.
    pub(super) prefix: String,
}

/// Why there are none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// Some are missing behind the prefix that has most of them.
    Missing { prefix: String, missing: Vec<String> },
    /// They are there more than once.
    Several { prefixes: Vec<String> },
}

/// Finds the weights `wanted` among `names`, which may have something before them and the marks of wrappers in them.
pub(super) fn find<'a>(
    wanted: &[&str],
    names: impl IntoIterator<Item = &'a str>,
    prefix: Option<&str>,
) -> Result<Found, NotFound> {
    let mut behind: BTreeMap<String, BTreeMap<&str, &str>> = BTreeMap::new();
    for name in names {
        let plain = without_wrappers(name);
        for (place, suffix) in suffixes(&plain) {
            let Ok(found) = wanted.binary_search(&suffix) else { continue };
            let own = behind.entry(plain[..place].to_owned()).or_default();
            // Of two spellings, the one with fewer marks.
            let known = own.entry(wanted[found]).or_insert(name);
            if name.len() < known.len() {
                *known = name;
            }
        }
    }
    if let Some(prefix) = prefix {
        behind.retain(|own, _| own == prefix);
    }
    let prefixes: Vec<String> = behind
        .iter()
        .filter(|(_, own)| own.len() == wanted.len())
        .map(|(prefix, _)| prefix.clone())
        .collect();
    match &prefixes[..] {
        [only] => {
            let own = behind.remove(only).unwrap_or_default();
            let names = own.into_iter().map(|(name, there)| (name.to_owned(), there.to_owned()));
            Ok(Found { names: names.collect(), prefix: only.clone() })
        }
        [] => {
            let best = behind
                .into_iter()
                .max_by_key(|(prefix, own)| (own.len(), usize::MAX - prefix.len()));
            let (prefix, own) =
                best.unwrap_or_else(|| (prefix.unwrap_or_default().to_owned(), BTreeMap::new()));
            let missing = wanted.iter().filter(|name| !own.contains_key(*name));
            Err(NotFound::Missing {
                prefix,
                missing: missing.map(|&name| name.to_owned()).collect(),
            })
        }
        _ => Err(NotFound::Several { prefixes }),
    }
}

/// A name without the marks of wrappers.
fn without_wrappers(name: &str) -> String {
    let own: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
    own.join(".")
}

/// Every end of a name that begins at a part of it, with its place.
fn suffixes(name: &str) -> impl Iterator<Item = (usize, &str)> {
    let places = std::iter::once(0).chain(name.match_indices('.').map(|(place, _)| place + 1));
    places.map(|place| (place, &name[place..]))
}

/// The first few names, and how many more there are.
pub(super) fn first_few(names: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = names.iter().take(SHOWN).cloned().collect();
    if names.len() > SHOWN {
        lines.push(format!("and {} more", names.len() - SHOWN));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: [&str; 3] = ["lm_head.weight", "model.a.weight", "model.b.weight"];

    fn found(names: &[&str], prefix: Option<&str>) -> Result<(String, Vec<String>), NotFound> {
        let found = find(&WANTED, names.iter().copied(), prefix)?;
        assert_eq!(found.names.keys().collect::<Vec<_>>(), WANTED);
        Ok((found.prefix, found.names.into_values().collect()))
    }

    #[test]
    fn names_behind_containers_and_in_wrappers_are_missed() {
        for prefix in ["", "model.", "state.model.", "module.", "a-b c.0."] {
            let names = WANTED.map(|name| format!("{prefix}{name}"));
            let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
            names.extend([
                "optimizer.state.model.a.weight.exp_avg",
                "model.a.weights",
                "xlm_head.weight",
            ]);
            let (own, taken) = found(&names, None).unwrap();
            assert_eq!(own, prefix);
            assert_eq!(taken, names[..3]);
        }
        let wrapped = [
            "module._orig_mod.lm_head.weight",
            "module._orig_mod.model._checkpoint_wrapped_module.a.weight",
            "_fsdp_wrapped_module.module.model.b._orig_mod.weight",
        ];
        assert_eq!(
            found(&wrapped, None).unwrap(),
            ("module.".to_owned(), wrapped.map(str::to_owned).into())
        );
    }

    #[test]
    fn weights_that_are_there_in_part_or_twice_are_taken() {
        let missing = |prefix: &str, missing: &[&str]| {
            let missing = missing.iter().map(|&name| name.to_owned()).collect();
            Err(NotFound::Missing { prefix: prefix.to_owned(), missing })
        };
        assert_eq!(found(&[], None), missing("", &WANTED));
        let some = ["x.model.a.weight", "x.lm_head.weight", "y.model.b.weight"];
        assert_eq!(found(&some, None), missing("x.", &["model.b.weight"]));
        let twice: Vec<String> =
            ["", "ema."].iter().flat_map(|p| WANTED.map(|name| format!("{p}{name}"))).collect();
        let twice: Vec<&str> = twice.iter().map(String::as_str).collect();
        let prefixes = vec![String::new(), "ema.".to_owned()];
        assert_eq!(found(&twice, None), Err(NotFound::Several { prefixes }));
        assert_eq!(found(&twice, Some("ema.")).unwrap().0, "ema.");
        assert_eq!(found(&twice, Some("")).unwrap().1, WANTED);
        assert_eq!(found(&twice, Some("other.")), missing("other.", &WANTED));
        let both = ["a._orig_mod.weight", "a.weight"];
        let found = find(&["a.weight"], both, None).unwrap();
        assert_eq!(found.names["a.weight"], "a.weight");
    }

    #[test]
    fn many_names_fill_the_screen() {
        let names: Vec<String> = (0..7).map(|i| i.to_string()).collect();
        assert_eq!(first_few(&names).last().unwrap(), "and 2 more");
        assert_eq!(first_few(&names[..5]), &names[..5]);
    }
}
