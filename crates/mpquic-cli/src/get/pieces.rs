//! [`write_pieces`]: many small pieces by few system calls.

use std::io::{self, ErrorKind, IoSlice, Write};

/// Writes all bytes of these pieces, in order. An error leaves an unknown number of bytes written,
/// from the first one on.
pub(crate) fn write_pieces(to: &mut impl Write, pieces: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let pieces = pieces.iter().map(AsRef::as_ref);
    // For a slice without bytes, 0 written bytes would be no failure.
    let slices = pieces.filter(|piece| !piece.is_empty()).map(IoSlice::new);
    let mut slices: Vec<_> = slices.collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match to.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most `room` bytes at once, after an interruption.
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
        calls: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls == 1 {
                return Err(ErrorKind::Interrupted.into());
            }
            let before = self.taken.len();
            let bytes = pieces.iter().flat_map(|piece| piece.iter());
            self.taken.extend(bytes.take(self.room));
            Ok(self.taken.len() - before)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_bytes_of_all_pieces_are_written_in_order() {
        for (room, calls) in [(100, 2), (4, 4), (1, 11)] {
            let mut narrow = Narrow {
                room,
                taken: Vec::new(),
                calls: 0,
            };
            write_pieces(&mut narrow, &["", "one", "", "three", "xy", ""]).unwrap();
            assert_eq!(
                (narrow.taken, narrow.calls),
                (b"onethreexy".to_vec(), calls)
            );
        }
    }

    #[test]
    fn a_full_place_is_an_error() {
        let mut full = [0; 4];
        let error = write_pieces(&mut &mut full[..], &["abc", "de"]).unwrap_err();
        assert_eq!((error.kind(), &full), (ErrorKind::WriteZero, b"abcd"));
        let nothing: [&str; 2] = ["", ""];
        write_pieces(&mut &mut full[..0], &nothing).unwrap();
    }
}
