//! [`Settings`]: the settings of a running client, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::process::failure::one_line;
use crate::proxy::quota::{QuotaRow, gigabytes};

/// The settings of a running client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) scheduler: String,
    pub(crate) controller: String,
    /// Costs of interfaces, as `--cost` takes them. The first cost that fits an interface counts.
    pub(crate) costs: Vec<String>,
    pub(crate) backups: Vec<String>,
    pub(crate) paused: Vec<String>,
    pub(crate) quotas: Vec<String>,
    pub(crate) interfaces: Vec<InterfaceRow>,
}

/// The settings of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterfaceRow {
    pub(crate) name: String,
    pub(crate) cost: u32,
    pub(crate) backup: bool,
    pub(crate) paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<QuotaRow>,
}

impl InterfaceRow {
    /// The word for the state: "open", "paused" or "quota used up".
    pub(crate) fn state(&self) -> &'static str {
        match &self.quota {
            _ if self.paused => "paused",
            Some(quota) if quota.used_up => "quota used up",
            _ => "open",
        }
    }

    /// The used part of the quota, such as "1.50 of 20.00 GB until 2026-12-01".
    pub(crate) fn used(&self) -> Option<String> {
        let quota = self.quota.as_ref()?;
        let until = quota.until.as_deref();
        let until = until.map_or("until the clock is set".to_owned(), |day| {
            format!("until {day}")
        });
        let (used, limit) = (gigabytes(quota.used), gigabytes(quota.limit));
        Some(format!("{used} of {limit} {until}"))
    }
}

impl Settings {
    /// The settings as lines.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "scheduler   {}", one_line(&self.scheduler));
        let _ = writeln!(text, "controller  {}", one_line(&self.controller));
        for (what, values) in [
            ("cost", &self.costs),
            ("backup", &self.backups),
            ("paused", &self.paused),
            ("quota", &self.quotas),
        ] {
            if !values.is_empty() {
                let _ = writeln!(text, "{what:<10}  {}", one_line(&values.join(", ")));
            }
        }
        for row in &self.interfaces {
            let stands_by = if row.backup { ", backup" } else { "" };
            let used = row.used();
            let used = used.map_or(String::new(), |used| format!(", {used}"));
            let name = one_line(&row.name);
            let (state, cost) = (row.state(), row.cost);
            let _ = writeln!(text, "{name}: {state}, cost {cost}{stands_by}{used}");
        }
        text
    }
}
