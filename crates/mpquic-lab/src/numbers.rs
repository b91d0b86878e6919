//! Formats numbers and their units.

/// A number with three to four significant digits.
pub(super) fn short(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        0.0 => 0,
        ..0.1 => 4,
        0.1..10.0 => 3,
        10.0..100.0 => 2,
        100.0..1000.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// The name of a metric without its unit, and the unit.
pub(super) fn unit(metric: &str) -> (&str, &'static str) {
    let units = [
        ("_s", "s"),
        ("_ms", "ms"),
        ("_mbit", "Mbit/s"),
        ("_mb", "MB"),
        ("_kb", "kB"),
        ("_pct", "%"),
    ];
    let found = units
        .iter()
        .find_map(|(end, unit)| Some((metric.strip_suffix(end)?, *unit)));
    found.unwrap_or((metric, ""))
}
