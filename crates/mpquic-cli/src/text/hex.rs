//! Hexadecimal digits.

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits in either case; `None` unless the text has exactly `N` pairs.
pub(crate) fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * N)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] * 16 + pair[1]) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_bytes_and_back() {
        assert_eq!(hex(&[0, 0x0f, 0xff]), "000fff");
        assert_eq!(bytes("000fFF"), Some([0, 0x0f, 0xff]));
        for wrong in ["", "000ff", "000fff0", "000ffg", "000fff00"] {
            assert_eq!(bytes::<3>(wrong), None, "{wrong}");
        }
    }
}
