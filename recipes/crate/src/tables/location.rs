//! Reads the places that settings name: paths and addresses of object stores.

use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::files::{Files, NO_SUCH_FILE, Unusable};
use crate::location::{Location, SCHEMES, Url};
use crate::pattern::{MATCHES_NOTHING, searched};
use crate::purpose::Purpose;
use crate::reader::{Context, Section};
use crate::secrets::{was_masked, without_url_secrets};
use crate::shown::{Shown, ShownPath};
use crate::source::{Item, Loc};

/// Reads a path or an address. Relative paths start from the folder of the text that names them, and are absolute
/// here. `what` is `a data source`, and `example` a legal value.
pub(crate) fn read(
    cx: &Context<'_>,
    text: &Item<String>,
    what: &str,
    example: &str,
) -> Result<Location, Diagnostic> {
    if let Some(url) = remote(cx, text, what)? {
        return Ok(url);
    }
    if text.is_empty() || text.contains('\0') {
        return Err(Diagnostic::error(format!("{what} must name a file or folder"))
            .label("not a path")
            .help(format!("for example: {example}")));
    }
    not_an_address(text, what)?;
    let path = base(cx, text.at.as_ref()).join(&**text);
    if path.to_str().is_none() {
        let folder = "the name of its folder is not valid UTF-8, which a recipe cannot hold";
        let shown = ShownPath(&**text);
        return Err(Diagnostic::error(format!("cannot use {what} `{shown}`: {folder}"))
            .label("in this folder")
            .help("rename the folder, or give an absolute path elsewhere"));
    }
    Ok(Location::Local(path))
}

/// The address of an object store, if the text is an address.
pub(crate) fn remote(
    cx: &Context<'_>,
    text: &str,
    what: &str,
) -> Result<Option<Location>, Diagnostic> {
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
    if !SCHEMES.contains(&scheme) {
        let shown = Shown(scheme);
        // A password would be shown without its address.
        let was_changed = without_url_secrets(text) != text;
        let help = match scheme {
            "file" if !was_changed => format!("write the path alone: \"{}\"", Shown(rest)),
            _ => "allowed: a local path, gs:// or s3://".to_owned(),
        };
        return Err(Diagnostic::error(format!("{what} cannot be at {shown}://"))
            .label("unknown scheme")
            .help(help));
    }
    if cx.purpose == Purpose::Train && was_masked(text) {
        let give = "give the address with its password again";
        return Err(masked("the password of this address", give));
    }
    if text.chars().any(char::is_whitespace) {
        return Err(Diagnostic::error(format!("{what} has a space in its address"))
            .label("an address has no spaces")
            .help("write %20 for a space in the name of an object"));
    }
    let bucket = rest.split('/').next().unwrap_or_default();
    let bucket = bucket.rsplit('@').next().unwrap_or_default();
    if bucket.is_empty() {
        return Err(Diagnostic::error(format!("{what} needs a bucket and a path"))
            .label("not an address")
            .help(format!("for example: {scheme}://bucket/path")));
    }
    Ok(Some(Location::Remote(Url(text.to_owned()))))
}

/// An address with a slash missing would be a path that nobody has.
pub(crate) fn not_an_address(text: &str, what: &str) -> Result<(), Diagnostic> {
    let found = SCHEMES
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme)?.strip_prefix(':').map(|rest| (scheme, rest)));
    let Some((scheme, rest)) = found else { return Ok(()) };
    let whole = format!("{scheme}://{}", rest.trim_start_matches('/'));
    Err(Diagnostic::error(format!("{what} at `{}` is neither a path nor an address", Shown(text)))
        .label("a slash is missing")
        .help(format!("write \"{}\"", Shown(&whole))))
}

/// A secret that was replaced when a run wrote down its recipe. Only a run needs it.
pub(crate) fn masked(what: &str, give: &str) -> Diagnostic {
    Diagnostic::error(format!("{what} was masked when this recipe was written down"))
        .label("not the secret itself")
        .help(give)
}

/// The folder that relative paths of a text start from.
pub(crate) fn base<'a>(cx: &Context<'a>, at: Option<&Loc>) -> &'a Path {
    at.map_or(Path::new(""), |at| &*cx.sources.get(at.source).base)
}

/// A file that a setting names: how it was written, and where it is.
pub(crate) struct Named<'a> {
    pub(crate) text: &'a Item<String>,
    pub(crate) path: &'a Path,
}

/// Looks at a file that a setting names. One that cannot be used is an error where the run is on this machine, and
/// otherwise worth a warning: it may be there on the machines of the run.
pub(crate) fn require<T>(
    t: &mut Section<'_, '_>,
    key: &'static str,
    what: &str,
    named: &Named<'_>,
    look: impl FnOnce(&dyn Files, &Path) -> Result<T, Unusable>,
) -> Option<T> {
    let cx = t.context();
    if !cx.looks_at_files() {
        return None;
    }
    let (text, path, at) = (&**named.text, named.path, &named.text.at);
    let Unusable { why, near } = match look(cx.files, path) {
        Ok(found) => return Some(found),
        Err(unusable) => unusable,
    };
    let mut help = Vec::new();
    if let Some(near) = near {
        let name = Path::new(text).with_file_name(near.file_name().unwrap_or_default());
        help.push(format!("did you mean `{}`?", ShownPath(name)));
    }
    if text.starts_with('~') {
        help.push("`~` has no meaning here: write the whole path".to_owned());
    } else if why == MATCHES_NOTHING {
        // As the folder is written, which the path that is searched may not be.
        let mut folder = base(cx, at.as_ref()).to_owned();
        folder.extend(&searched(Path::new(text)));
        help.push(format!("looked in {}", ShownPath(folder)));
    } else if why == NO_SUCH_FILE && path != Path::new(text) {
        let base = base(cx, at.as_ref());
        help.push(format!("relative paths here start from {}", ShownPath(base)));
    }
    let shown = ShownPath(text);
    if cx.needs_files() {
        let message = format!("cannot read {what} `{shown}`: {why}");
        let mut problem = Diagnostic::error(message).at(at.clone()).label(why);
        problem.help = (!help.is_empty()).then(|| help.join("\n"));
        t.reject(key, problem);
    } else {
        let message = format!("cannot read {what} `{shown}` on this machine: {why}");
        let mut warning = Diagnostic::warning(message).at(at.clone()).label(why);
        warning.help = (!help.is_empty()).then(|| help.join("\n"));
        cx.diagnostics.push(warning);
    }
    None
}
