//! Names of network devices.

/// The longest name, bytes: the kernel's IFNAMSIZ with its NUL is 16.
const MAX_NAME: usize = 15;

pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/:%".contains(c);
    let is_fine = (1..=MAX_NAME).contains(&text.len())
        && !text.contains(is_odd)
        && !text.starts_with(['-', '.']);
    if is_fine {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "expected the name of a network device: at most {MAX_NAME} bytes, without spaces or any of / : %"
        ))
    }
}
