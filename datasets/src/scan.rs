//! One pass over the bytes of a text file.

use std::io::{self, Read};

use crate::Result;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) bytes: u64,
    pub(crate) newlines: u64,
    pub(crate) nuls: u64,
    pub(crate) crlfs: u64,
    pub(crate) byte_order_mark: bool,
}

#[derive(Debug)]
pub(crate) enum Problem {
    Read(io::Error),
    BadByte { line: u64, offset: u64, byte: u8, rule: &'static str },
}

/// Reads all of `source` and hands it to `each` in pieces that are whole characters.
///
/// A character that the end of the buffer cuts is kept for the next read, so the buffer needs at
/// least 4 bytes.
pub(crate) fn scan(
    mut source: impl Read,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]),
) -> Result<Counts, Problem> {
    let mut counts = Counts::default();
    // Bytes at the start of the buffer that begin a character.
    let mut held = 0;
    let mut last_byte = 0;
    loop {
        let read = match source.read(&mut buffer[held..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Problem::Read(error)),
        };
        let filled = &buffer[..held + read];
        let (text, invalid) = match std::str::from_utf8(filled) {
            Ok(_) => (filled, false),
            Err(error) => (&filled[..error.valid_up_to()], error.error_len().is_some()),
        };
        let cut = !invalid && read == 0 && held > 0;
        if invalid || cut {
            return Err(Problem::BadByte {
                line: counts.newlines + tally(text)[0] + 1,
                offset: counts.bytes + text.len() as u64,
                byte: filled[text.len()],
                rule: if cut {
                    "begins a UTF-8 character that the end of the file cuts off"
                } else {
                    "is not valid UTF-8"
                },
            });
        }
        if read == 0 {
            return Ok(counts);
        }

        if counts.bytes == 0 {
            counts.byte_order_mark = text.starts_with(b"\xef\xbb\xbf");
        }
        counts.bytes += text.len() as u64;
        let [newlines, nuls, returns] = tally(text);
        counts.newlines += newlines;
        counts.nuls += nuls;
        if last_byte == b'\r' && text.first() == Some(&b'\n') {
            counts.crlfs += 1;
        }
        if returns > 0 {
            counts.crlfs += text.windows(2).filter(|pair| pair == b"\r\n").count() as u64;
        }
        last_byte = text.last().copied().unwrap_or(last_byte);
        each(text);

        let (start, end) = (text.len(), filled.len());
        buffer.copy_within(start..end, 0);
        held = end - start;
    }
}

/// Counts LF, NUL and CR.
///
/// In blocks that a byte can count: the compiler then compares and adds 16 bytes at once, which is
/// three times as fast as counting in 64 bits.
fn tally(text: &[u8]) -> [u64; 3] {
    let mut total = [0; 3];
    for block in text.chunks(255) {
        let (mut newlines, mut nuls, mut returns) = (0u8, 0u8, 0u8);
        for &byte in block {
            newlines += u8::from(byte == b'\n');
            nuls += u8::from(byte == 0);
            returns += u8::from(byte == b'\r');
        }
        total[0] += u64::from(newlines);
        total[1] += u64::from(nuls);
        total[2] += u64::from(returns);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_counted_to_the_full() {
        for (place, byte) in [b'\n', 0, b'\r'].into_iter().enumerate() {
            let mut expected = [0; 3];
            expected[place] = 1000;
            assert_eq!(tally(&[byte; 1000]), expected);
        }
        assert_eq!(tally(b"\n.\r\0\r\n\r"), [2, 1, 3]);
        assert_eq!(tally(b""), [0; 3]);
    }

    /// Gives at most as many bytes per read as the next of `sizes` says.
    struct ShortReads<'a> {
        rest: &'a [u8],
        sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    }

    impl Read for ShortReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes.next().copied().unwrap_or(1).min(buffer.len());
            if size == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.rest.read(&mut buffer[..size])
        }
    }

    /// Bytes that are mostly text, with characters of every length and sometimes a bad byte.
    fn nearly_text() -> impl Strategy<Value = Vec<u8>> {
        let characters = vec!["a", "\n", "\r\n", "\r", "\0", "é", "€", "😀", "\u{feff}"];
        let piece = prop_oneof![
            8 => prop::sample::select(characters).prop_map(|text| text.as_bytes().to_vec()),
            1 => any::<u8>().prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// However the reads and the buffer cut the bytes, the answer is that of looking at all of
        /// them at once.
        #[test]
        fn cuts_do_not_matter(
            content in nearly_text(),
            buffer_size in 4usize..9,
            mut sizes in prop::collection::vec(0usize..6, 0..4),
        ) {
            // So that not all reads are interrupted.
            sizes.push(3);
            let mut joined = Vec::new();
            let reader = ShortReads { rest: &content, sizes: sizes.iter().cycle() };
            let mut buffer = vec![0; buffer_size];
            let result = scan(reader, &mut buffer, |text| joined.extend_from_slice(text));
            match (std::str::from_utf8(&content), result) {
                (Ok(text), Ok(counts)) => {
                    prop_assert_eq!(&joined, &content);
                    let expected = Counts {
                        bytes: content.len() as u64,
                        newlines: text.matches('\n').count() as u64,
                        nuls: text.matches('\0').count() as u64,
                        crlfs: text.matches("\r\n").count() as u64,
                        byte_order_mark: text.starts_with('\u{feff}'),
                    };
                    prop_assert_eq!(counts, expected);
                }
                (Err(error), Err(Problem::BadByte { line, offset, byte, rule })) => {
                    let valid = &content[..error.valid_up_to()];
                    prop_assert_eq!(offset, valid.len() as u64);
                    prop_assert_eq!(line, valid.iter().filter(|&&b| b == b'\n').count() as u64 + 1);
                    prop_assert_eq!(byte, content[valid.len()]);
                    prop_assert_eq!(rule.contains("cuts off"), error.error_len().is_none());
                }
                (expected, found) => prop_assert!(false, "{expected:?}, but {found:?}"),
            }
        }
    }
}
