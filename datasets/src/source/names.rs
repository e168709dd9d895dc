//! What the name of a file says about it, and what a wrong name was meant to be.

use super::{Compression, Error, Format, Input, Origin, Result};

/// For messages.
pub(super) const EXTENSIONS: &str =
    ".jsonl .ndjson .json .txt .md .text (each also with .gz .zst .zstd) .parquet .arrow";

/// How a file of this name is to be read. Nothing if the extension says nothing: the file is then
/// plain text, if it is data at all.
pub(super) fn format_of(name: &str) -> (Option<Format>, Compression) {
    let name = name.to_ascii_lowercase();
    let (stem, compression) = match name.rsplit_once('.') {
        Some((stem, "gz")) => (stem, Compression::Gzip),
        Some((stem, "zst" | "zstd")) => (stem, Compression::Zstd),
        _ => (name.as_str(), Compression::None),
    };
    let format = match stem.rsplit_once('.').map(|(_, extension)| extension) {
        Some("jsonl" | "ndjson" | "json") => Some(Format::JsonLines),
        Some("txt" | "md" | "text") => Some(Format::Text),
        Some("parquet") => Some(Format::Parquet),
        Some("arrow") => Some(Format::Arrow),
        _ => None,
    };
    (format, compression)
}

/// A file whose format follows from its name.
pub(super) fn described(
    name: String,
    origin: Origin,
    bytes: u64,
    identity: String,
) -> Result<Input> {
    let (format, compression) = format_of(&name);
    let format = format.unwrap_or(Format::Text);
    if matches!(format, Format::Parquet | Format::Arrow) && compression != Compression::None {
        return Err(Error::BadPath {
            path: name,
            problem: "Parquet and Arrow files cannot be read from inside another compression"
                .to_owned(),
            hint: "decompress it first".to_owned(),
        });
    }
    Ok(Input { name, origin, format, compression, bytes, identity })
}

/// The nearest of some names, if one is near: "; did you mean …?".
pub(super) fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(nearest) => format!("; did you mean {nearest:?}?"),
        None => String::new(),
    }
}

fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let likeness = |other: &str| strsim::jaro_winkler(&lower, &other.to_lowercase());
    names
        .map(|other| (likeness(other), other))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| other)
}

/// Some of the names, in quotes.
pub(super) fn list<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 12;
    let mut text = Vec::new();
    for name in names.iter().take(SHOWN) {
        let name = name.as_ref();
        let end = name.char_indices().nth(60).map_or(name.len(), |(at, _)| at);
        text.push(format!("{:?}", &name[..end]));
    }
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_says_how_to_read() {
        use Compression as C;
        use Format as F;
        for (name, expected) in [
            ("a.jsonl", (Some(F::JsonLines), C::None)),
            ("a.ndjson.gz", (Some(F::JsonLines), C::Gzip)),
            ("A.JSON.ZST", (Some(F::JsonLines), C::Zstd)),
            ("a.md.zstd", (Some(F::Text), C::Zstd)),
            ("train-00000-of-00002.parquet", (Some(F::Parquet), C::None)),
            ("data.arrow", (Some(F::Arrow), C::None)),
            ("notes", (None, C::None)),
            ("notes.gz", (None, C::Gzip)),
            ("a.v2", (None, C::None)),
        ] {
            assert_eq!(format_of(name), expected, "{name}");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["text", "id", "content"];
        let suggest = |name| did_you_mean(name, names.iter().copied());
        assert_eq!(suggest("txt"), "; did you mean \"text\"?");
        assert_eq!(suggest("Content"), "; did you mean \"content\"?");
        assert_eq!(suggest("zzz"), "");
    }
}
