//! Names that a cluster derives from the name of a run.

/// Labels of Kubernetes (RFC 1035) are at most this long.
const LONGEST_LABEL: usize = 63;

/// The name of the JobSet of one slice.
pub fn jobset_name(run: &str, slice: u64) -> String {
    format!("{run}-s{slice}")
}

/// The longest name that a cluster makes from that of a run: the pod of the last host of the last slice, with the
/// five letters that Kubernetes adds.
pub fn longest_pod_name(run: &str, slices: u64, hosts_per_slice: u64) -> String {
    let jobset = jobset_name(run, slices.saturating_sub(1));
    format!("{jobset}-workers-0-{}-xxxxx", hosts_per_slice.saturating_sub(1))
}

/// How long the name of a run may be.
pub fn longest_run_name(slices: u64, hosts_per_slice: u64) -> usize {
    LONGEST_LABEL.saturating_sub(longest_pod_name("", slices, hosts_per_slice).len())
}

/// Whether a name is a label: lower-case letters, digits and `-`, a letter first, no `-` last.
pub fn is_label(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let first = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    first && name.bytes().all(legal) && !name.ends_with('-') && name.len() <= LONGEST_LABEL
}

/// The label that is nearest to a name, at most `longest` long.
pub fn nearest_label(name: &str, longest: usize) -> String {
    let lower = name.to_lowercase();
    let start = lower.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label: String =
        start.chars().map(|c| if legal(c) { c } else { '-' }).take(longest).collect();
    let label = label.trim_end_matches('-');
    if label.is_empty() { "run".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_labels_are_labels_whose_pods_have_legal_names() {
        for name in ["My_Run", "-a", "a-", "ünï", "1st", "", "a", &"x".repeat(64), "qwen3.1"] {
            for (slices, hosts) in [(1, 1), (100, 256)] {
                let longest = longest_run_name(slices, hosts);
                let label = nearest_label(name, longest);
                assert!(is_label(&label), "{name} -> {label}");
                assert!(is_label(&longest_pod_name(&label, slices, hosts)), "{name} -> {label}");
            }
        }
    }

    #[test]
    fn the_longest_run_name_is_exactly_as_long_as_the_limit_allows() {
        for (slices, hosts) in [(1, 1), (10, 16), (11, 17), (100, 256)] {
            let name = "a".repeat(longest_run_name(slices, hosts));
            assert_eq!(longest_pod_name(&name, slices, hosts).len(), LONGEST_LABEL);
        }
    }
}
