//! Names of network interfaces, and patterns for them.

/// True if an interface with this name is meant: `pattern` is the name, or has `*` for any
/// characters and `?` for one.
///
/// ```
/// use mpquic_paths::fits_interface;
///
/// assert!(fits_interface("wwan0", "wwan0") && fits_interface("wwan*", "wwan0"));
/// assert!(fits_interface("enx?*", "enx0123456789ab") && fits_interface("*", "eth0"));
/// assert!(!fits_interface("wwan*", "eth0") && !fits_interface("wwan?", "wwan"));
/// ```
pub fn fits_interface(pattern: &str, name: &str) -> bool {
    let (mut pattern_left, mut name_left) = (pattern.chars(), name.chars());
    // Behind the last `*`: the rest of the pattern, and of the name that it was tried on.
    let mut again = None;
    loop {
        let name_before = name_left.clone();
        match (pattern_left.next(), name_left.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                again = Some((pattern_left.clone(), name_before.clone()));
                name_left = name_before;
            }
            (Some('?'), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => {
                let Some((pattern, mut name)) = again.take() else {
                    return false;
                };
                if name.next().is_none() {
                    return false;
                }
                again = Some((pattern.clone(), name.clone()));
                (pattern_left, name_left) = (pattern, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("a*", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*ab", "aab", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ba", false),
            ("?", "", false),
            ("?*", "x", true),
            ("eth?", "eth10", false),
            ("eth?*", "eth10", true),
            ("eth0", "eth01", false),
            ("eth01", "eth0", false),
        ] {
            assert_eq!(fits_interface(pattern, name), expected, "{pattern} {name}");
        }
    }
}
