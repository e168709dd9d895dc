//! What controller and agents of a run know and nobody else does.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

/// Bytes of a secret, and of a nonce.
pub(crate) const LENGTH: usize = 32;

/// The secret of a run: 32 random bytes, written as 64 hexadecimal digits. It is never printed.
#[derive(Clone)]
pub struct Secret([u8; LENGTH]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> Result<Self> {
        random().map(Self).map_err(|problem| Error::Secret {
            place: "the secret of this run".to_owned(),
            problem,
            hint: "see that /dev/urandom can be read".to_owned(),
        })
    }

    /// From the text that [`Self::expose`] gives.
    ///
    /// # Errors
    /// The text is no secret. `place` says where it came from.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        from_hex(text.trim()).map(Self).ok_or_else(|| Error::Secret {
            place: place.to_owned(),
            problem: format!("no secret: it is not {} hexadecimal digits", 2 * LENGTH),
            hint: "use the secret that the controller of this run has made".to_owned(),
        })
    }

    /// From an environment variable; `None` if it is not set.
    ///
    /// # Errors
    /// Its value is no secret.
    pub fn from_variable(name: &str) -> Result<Option<Self>> {
        let Some(value) = std::env::var_os(name) else { return Ok(None) };
        Self::parse(&value.to_string_lossy(), &format!("the variable {name}")).map(Some)
    }

    /// From a file that only its owner can read.
    ///
    /// # Errors
    /// The file cannot be read, others can read it too, or it has no secret.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let trouble = |error: io::Error| Error::Secret {
            place: place.clone(),
            problem: format!("cannot be read: {error}"),
            hint: "give the file with the secret of this run".to_owned(),
        };
        let file = File::open(path).map_err(trouble)?;
        let mode = file.metadata().map_err(trouble)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::Secret {
                problem: format!("others can read or change this secret: its mode is {mode:04o}"),
                hint: format!("chmod 600 {place}"),
                place,
            });
        }
        let mut text = String::new();
        // No more than a secret and some white space, whatever the file is.
        file.take(1024).read_to_string(&mut text).map_err(trouble)?;
        Self::parse(&text, &place)
    }

    /// Writes it to a new file with mode 0600. There must be none yet, so that nobody else can have opened it.
    ///
    /// # Errors
    /// The file is there or cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        made.and_then(|mut file| writeln!(file, "{}", self.expose())).map_err(|error| {
            Error::Secret {
                place: path.display().to_string(),
                problem: format!("cannot be written: {error}"),
                hint: "choose a new file in a folder that is yours".to_owned(),
            }
        })
    }

    /// As text, to be handed to an agent in its environment. Nothing else may do with it.
    pub fn expose(&self) -> String {
        to_hex(&self.0)
    }

    /// What keys are derived from.
    pub(crate) fn extract(&self, salt: &[u8]) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Bytes that nobody can foresee.
pub(crate) fn random() -> std::result::Result<[u8; LENGTH], String> {
    let mut bytes = [0; LENGTH];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err("the system gives no random bytes".to_owned()),
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if text.len() != 2 * LENGTH || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_survives_its_file_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Secret::read(&path).unwrap().expose(), secret.expose());
        assert_ne!(Secret::generate().unwrap().expose(), secret.expose());
        assert_eq!(format!("{secret:?}"), "Secret(***)");
        assert!(secret.write(&path).is_err(), "an old file is not written over");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        Secret::generate().unwrap().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let text = Secret::read(&path).unwrap_err().to_string();
        assert!(text.contains("0644") && text.contains("chmod 600"), "{text}");
    }

    #[test]
    fn what_is_no_secret_is_not_quoted() {
        let almost = "ab".repeat(31) + "0g";
        for text in ["", "hunter2", &almost, &"ab".repeat(33), "\u{e4}".repeat(32).as_str()] {
            let error = Secret::parse(text, "the variable X").unwrap_err().to_string();
            assert!(error.starts_with("the variable X: no secret"), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert!(Secret::parse(&format!(" {}\n", "aB".repeat(32)), "x").is_ok());
    }
}
