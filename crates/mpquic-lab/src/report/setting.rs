//! Describes an experiment: a drawing of the network, the transfer as text, and the command that
//! repeats it.

use std::fmt::Write as _;

use mpquic_sim::experiment::ScenarioResults;

use super::svg::{COLOURS, escape};

/// The network, the transfer and the command of a scenario.
pub(super) fn setting(scenario: &ScenarioResults) -> String {
    let mut html = "<div class=\"setting\">\n".to_owned();
    html += &network(scenario);
    let words = &scenario.words;
    let _ = writeln!(html, "<p>Transferred: {}.</p>", escape(&words.workload));
    for other in &words.others {
        let _ = writeln!(html, "<p>Also there: {}.</p>", escape(other));
    }
    if !scenario.command.is_empty() {
        let _ = writeln!(
            html,
            "<p class=\"command\"><code>{}</code> (seed {}, mpquic {})</p>",
            escape(&scenario.command),
            scenario.seed,
            escape(&scenario.version)
        );
    }
    html + "</div>\n"
}

/// A drawing of client and server, with a line for each path between them. A line has the path's
/// colour and the properties of the path.
pub(super) fn network(scenario: &ScenarioResults) -> String {
    let words = &scenario.words;
    let mut html = "<div class=\"network\"><div class=\"host\">client</div>\n<ul>".to_owned();
    for (index, name) in scenario.paths.iter().enumerate() {
        let like = words.paths.get(index).map_or("", |words| words);
        let links = words.links.iter();
        let through = links.filter(|(_, _, paths)| paths.contains(&index));
        let through: Vec<_> = through.map(|(name, ..)| name.as_str()).collect();
        let through = if through.is_empty() {
            String::new()
        } else {
            format!(", then through {}", escape(&through.join(" and ")))
        };
        let _ = writeln!(
            html,
            "<li class=\"c{}\"><b>{}</b> {}{through}</li>",
            index % COLOURS,
            escape(name),
            escape(like)
        );
    }
    for (name, like, _) in &words.links {
        let (name, like) = (escape(name), escape(like));
        let _ = writeln!(
            html,
            "<li class=\"shared\"><b>{name}</b>, shared: {like}</li>"
        );
    }
    html + "</ul>\n<div class=\"host\">server</div></div>\n"
}
