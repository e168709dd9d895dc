//! Numbers as people read them.

use titan_datasets::shards::Account;
use titan_parallelism::MeshDegrees;

/// `0.4 s`, `12.3 s`, `4m05s`, `2h03m`.
pub(crate) fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 if seconds < 0.01 => format!("{:.1} ms", seconds * 1e3),
        0..60 if seconds < 10.0 => format!("{seconds:.2} s"),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
    }
}

/// `950`, `12.3k`, `1.28M`, `8.03B`: three digits and a decimal unit.
pub(crate) fn count(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n < 999.5 => return format!("{n:.0}"),
        n if n < 999.5e3 => (n / 1e3, "k"),
        n if n < 999.5e6 => (n / 1e6, "M"),
        n if n < 999.5e9 => (n / 1e9, "B"),
        n => (n / 1e12, "T"),
    };
    let decimals = if scaled < 9.995 {
        2
    } else if scaled < 99.95 {
        1
    } else {
        0
    };
    format!("{scaled:.decimals$}{unit}")
}

/// `1,638,400`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `950 bytes`, `12 kB`, `1.3 MB`, `640 MB`, `12.3 GB`: decimal units, as pip writes them and disks are sold.
pub(crate) fn bytes(number: u64) -> String {
    let (scaled, unit) = match number {
        0..1_000 => return plural(number, "byte"),
        1_000..999_500 => (number as f64 / 1e3, "kB"),
        999_500..999_500_000 => (number as f64 / 1e6, "MB"),
        _ => (number as f64 / 1e9, "GB"),
    };
    // Kilobytes need no decimals: nobody plans with them.
    let decimals = match unit {
        "MB" if scaled < 9.95 => 1,
        "GB" if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {unit}")
}

/// `1 file`, `3 files`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(number)) }
}

/// Records that gave no tokens, a line for each kind.
pub(crate) fn left_out(account: &Account) -> Vec<String> {
    let mut lines = Vec::new();
    if account.empty_files > 0 {
        lines.push(format!("passed over {}", plural(account.empty_files, "empty file")));
    }
    if account.empty_documents > 0 {
        lines.push(format!("passed over {}", plural(account.empty_documents, "empty document")));
    }
    for (reason, count) in &account.bad {
        let records = plural(*count, "bad record");
        lines.push(format!(
            "passed over {records} ({reason}), listed in skipped.jsonl of its shards"
        ));
    }
    lines
}

/// `replicate 1 x shard 2 x tensor 2, experts over 4 ranks`: the axes that every run has, and the others where they are
/// more than 1.
pub(crate) fn axes(mesh: &MeshDegrees) -> String {
    let mut text = format!("replicate {} x shard {}", mesh.replicate, mesh.shard);
    for (name, degree) in [("context", mesh.context), ("tensor", mesh.tensor)] {
        if degree > 1 {
            text += &format!(" x {name} {degree}");
        }
    }
    if mesh.expert > 1 {
        text += &format!(", experts over {} ranks", mesh.expert);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_one_are_not_spoken_of() {
        let mut mesh = MeshDegrees { replicate: 1, shard: 2, expert: 1, context: 1, tensor: 1 };
        assert_eq!(axes(&mesh), "replicate 1 x shard 2");
        (mesh.expert, mesh.tensor) = (4, 2);
        assert_eq!(axes(&mesh), "replicate 1 x shard 2 x tensor 2, experts over 4 ranks");
    }

    #[test]
    fn numbers_read_well_at_every_size() {
        let times = [0.0004, 0.16, 9.99, 12.34, 58.44, 245.0, 7390.0].map(seconds);
        assert_eq!(times, ["0.4 ms", "0.16 s", "9.99 s", "12.3 s", "58.4 s", "4m05s", "2h03m"]);
        let counts = [12.0, 999.0, 1000.0, 12_345.0, 1_280_000.0, 8.03e9, 4.058e11].map(count);
        assert_eq!(counts, ["12", "999", "1.00k", "12.3k", "1.28M", "8.03B", "406B"]);
        let sizes = [0, 1, 999, 1_000, 999_499, 999_500, 9_940_000, 9_960_000, 999_499_999];
        let read = [
            "0 bytes",
            "1 byte",
            "999 bytes",
            "1 kB",
            "999 kB",
            "1.0 MB",
            "9.9 MB",
            "10 MB",
            "999 MB",
        ];
        assert_eq!(sizes.map(bytes), read);
        assert_eq!(
            [999_500_000, 99_940_000_000, 2_400_000_000_000].map(bytes),
            ["1.0 GB", "99.9 GB", "2400 GB"]
        );
        assert_eq!([0, 999, 1000, 1_638_400].map(grouped), ["0", "999", "1,000", "1,638,400"]);
        assert_eq!([plural(1, "file"), plural(1200, "file")], ["1 file", "1,200 files"]);
    }
}
