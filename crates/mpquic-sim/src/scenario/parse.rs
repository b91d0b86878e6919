//! Reads a [`Scenario`] from the text of a file.

use std::time::Duration;

use super::contender::{
    Competitor, Contender, read_competitors, read_contenders, read_cross_traffic,
};
use super::links::{LinkPair, read_absences};
use super::model::{Draw, PathSpec, Scenario, SharedLink, Swap, Transport, default_baseline};
use super::number::{Limits, Source};
use super::published::{read_forms, read_published};
use super::reader::{Item, Result, Table, Text};
use super::workload::{Kind, Workload, read_pages};
use crate::policies::Policies;

/// Smallest UDP payload of a connection whose DATAGRAMs carry the packets of an inner connection,
/// bytes.
const MTU_WITH_INNER: u16 = 1280;

/// Most paths, because addresses have room for no more.
const MAX_PATHS: usize = 8;

impl Scenario {
    /// Reads a scenario. `file` is the name of the text in messages. Without directories and
    /// extension, it becomes the name of the scenario.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`](super::ScenarioError) with file, line, field and the accepted values.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        Self::parse_with(&Policies::built_in(), file, text)
    }

    /// Like [`Self::parse`], for a scenario that may name added policies.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn parse_with(policies: &Policies, file: &str, text: &str) -> Result<Self> {
        let source = Text::new(file, text, policies);
        let table = source.parse()?;
        let root = Table::root(&source, &table);
        let links = read_links(&root)?;
        let paths = read_paths(&root, &links)?;
        let names: Vec<_> = paths.iter().map(|path| path.name.clone()).collect();
        let pages = read_pages(&root)?;
        let contenders = read_contenders(&root, &names)?;
        let optional_text = |key| -> Result<Option<String>> {
            let text = root.optional(key).map(|item| item.text()).transpose()?;
            Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
        };
        let text_of = |key| optional_text(key).map(Option::unwrap_or_default);
        let limit = root
            .optional("limit_s")
            .map(|item| item.duration(Limits::new(0.1, 1e5, "s"), 1.0));
        let warm_up = root
            .optional("warm_up_s")
            .map(|item| item.duration(Limits::new(0.0, 1e5, "s"), 1.0));
        let (runs, draw) = read_repetitions(&root)?;
        let scenario = Self {
            id: id_of(file),
            title: text_of("title")?,
            paper: text_of("paper")?,
            figure: text_of("figure")?,
            seed: root
                .optional("seed")
                .map_or(Ok(1), |item| item.integer(0, 1 << 53))?,
            runs,
            draw,
            independent_losses: root
                .optional("independent_losses")
                .map_or(Ok(false), |item| item.boolean())?,
            zip_sweeps: root.optional("sweep").map_or(Ok(false), |item| {
                item.choice(&[("product", false), ("zip", true)])
            })?,
            limit: limit.transpose()?.unwrap_or(Duration::from_secs(300)),
            warm_up: warm_up.transpose()?.unwrap_or_default(),
            metric: optional_text("metric")?,
            baseline: read_baseline(&root, &contenders)?,
            swaps: read_swaps(&root, &names)?,
            workload: Workload::read(&root.required("workload")?, pages, &names)?,
            competitors: read_competitors(&root, &names)?,
            cross_traffic: read_cross_traffic(&root, &names)?,
            transport: read_transport(&root)?,
            published: read_published(&root, &contenders)?,
            as_published: read_forms(&root, &contenders)?,
            variant_of: optional_text("variant_of")?,
            links,
            paths,
            contenders,
            parameters: source.parameters.borrow().clone(),
            policies: policies.clone(),
        };
        scenario.check(&root)?;
        scenario.check_metrics(&root)?;
        root.finish()?;
        Ok(scenario)
    }

    /// Checks that changes of address come during the connection.
    fn check_migrations(&self, root: &Table<'_>) -> Result<()> {
        let (start, limit) = (self.workload.start, self.limit);
        let mut times = self.contenders.iter().filter_map(|one| one.migration);
        let Some(wrong) = times.find(|one| one.at <= start || one.at >= limit) else {
            return Ok(());
        };
        let [at, start, limit] = [wrong.at, start, limit].map(|time| time.as_secs_f64());
        let item = root.required("contender")?;
        Err(item.error(&format!(
            "`migrate_s` = {at} is not possible; expected more than the start at {start} s, and less than `limit_s` = {limit}"
        )))
    }

    /// Checks rules that concern several fields.
    fn check(&self, root: &Table<'_>) -> Result<()> {
        let ends = match self.workload.kind {
            Kind::Constant { duration, .. }
            | Kind::Bulk { duration }
            | Kind::Messages { duration, .. } => duration,
            _ => Duration::ZERO,
        };
        let ends = ends + self.workload.start;
        let limit = format!("`limit_s` = {}", self.limit.as_secs_f64());
        if ends > self.limit {
            let item = root.required("workload")?;
            let ends = ends.as_secs_f64();
            return Err(item.error(&format!("it ends after {ends} s; expected at most {limit}")));
        }
        if self.warm_up >= self.limit {
            let item = root.required("warm_up_s")?;
            return Err(item.expected(&format!("less than {limit}")));
        }
        let late = self.competitors.iter().find(|one| one.start >= self.limit);
        if let Some(Competitor { name, start, .. }) = late {
            let item = root.required("competitor")?;
            let start = start.as_secs_f64();
            let problem = format!("{name} would start after {start} s; expected less than {limit}");
            return Err(item.error(&problem));
        }
        self.check_migrations(root)?;
        let mtu = self.transport.mtu;
        if self.workload.inner.is_some() && mtu < MTU_WITH_INNER {
            let item = root.required("workload")?;
            let problem = format!(
                "`inner` is not possible with `transport.mtu` = {mtu}; expected at least {MTU_WITH_INNER}"
            );
            return Err(item.error(&problem));
        }
        let mut lengths = self
            .parameters
            .iter()
            .filter_map(|parameter| match &parameter.source {
                Source::Swept(values) => Some((values.len(), &parameter.name)),
                _ => None,
            });
        if self.zip_sweeps
            && let Some((first, name)) = lengths.next()
            && let Some((other, other_name)) = lengths.find(|(length, _)| *length != first)
        {
            let item = root.required("sweep")?;
            return Err(item.error(&format!(
                "\"zip\" needs lists of one length; {name} has {first} values, {other_name} {other}"
            )));
        }
        Ok(())
    }
}

fn id_of(file: &str) -> String {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name).into()
}

fn read_baseline(root: &Table<'_>, contenders: &[Contender]) -> Result<String> {
    let Some(item) = root.optional("baseline") else {
        return Ok(default_baseline(contenders));
    };
    let names: Vec<_> = contenders
        .iter()
        .map(|contender| (contender.name.as_str(), ()))
        .collect();
    item.choice(&names)?;
    Ok(item.text()?.into())
}

fn read_repetitions(root: &Table<'_>) -> Result<(usize, Draw)> {
    let runs = root
        .optional("runs")
        .map_or(Ok(1), |item| item.integer(1, 100_000))?;
    let points = root.optional("points");
    let filling = root.optional("draw").map_or(Ok(false), |item| {
        item.choice(&[("uniform", false), ("space-filling", true)])
    })?;
    let draw = match (filling, points) {
        (true, points) => {
            let points = points.map_or(Ok(20), |item| item.integer(1, 10_000))?;
            Draw::SpaceFilling(points as usize)
        }
        (false, None) => Draw::Uniform,
        (false, Some(item)) => return Err(item.error("needs `draw = \"space-filling\"`")),
    };
    Ok((runs as usize, draw))
}

fn read_links(root: &Table<'_>) -> Result<Vec<SharedLink>> {
    let Some(item) = root.optional("link") else {
        return Ok(Vec::new());
    };
    let mut links: Vec<SharedLink> = Vec::new();
    for table in item.tables()? {
        let name = read_name(&table, links.iter().map(|link| link.name.as_str()))?;
        let table = table.named(&format!("link {name}"));
        let link = LinkPair::read(&table, &name)?;
        table.finish()?;
        links.push(SharedLink { name, links: link });
    }
    Ok(links)
}

fn read_name<'a>(table: &Table<'_>, others: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let item = table.required("name")?;
    let name = item.text()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(item.expected("letters, digits, - and _"));
    }
    if others.into_iter().any(|other| other == name) {
        return Err(item.error(&format!("\"{name}\" is there already")));
    }
    Ok(name.into())
}

fn read_paths(root: &Table<'_>, links: &[SharedLink]) -> Result<Vec<PathSpec>> {
    let mut paths: Vec<PathSpec> = Vec::new();
    let item = root.required("path")?;
    for table in item.tables()? {
        let name = read_name(&table, paths.iter().map(|path| path.name.as_str()))?;
        let table = table.named(&format!("path {name}"));
        let via = table.optional("via").map_or(Ok(Vec::new()), |item| {
            let names = links.iter().enumerate();
            let names: Vec<_> = names
                .map(|(index, link)| (link.name.as_str(), index))
                .collect();
            let items = item.texts()?;
            items
                .iter()
                .map(|(item, _): &(Item<'_>, _)| item.choice(&names))
                .collect()
        })?;
        paths.push(PathSpec {
            links: LinkPair::read(&table, &name)?,
            name,
            via,
            backup: table
                .optional("backup")
                .map_or(Ok(false), |item| item.boolean())?,
            absent: read_absences(&table)?,
        });
        table.finish()?;
    }
    if paths.len() > MAX_PATHS {
        let count = paths.len();
        let problem = format!("{count} are not possible; expected at most {MAX_PATHS}");
        return Err(item.error(&problem));
    }
    Ok(paths)
}

fn read_swaps(root: &Table<'_>, names: &[String]) -> Result<Vec<Swap>> {
    let Some(item) = root.optional("swap") else {
        return Ok(Vec::new());
    };
    let read = |table: Table<'_>| {
        let table = table.named("swap");
        let time = table.required("t")?;
        let item = table.required("paths")?;
        let choices: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, n)| (n.as_str(), i))
            .collect();
        let paths = item.items()?;
        let paths: Result<Vec<_>> = paths.iter().map(|item| item.choice(&choices)).collect();
        let paths: Vec<usize> = paths?;
        let [a, b] = paths[..] else {
            let count = paths.len();
            return Err(item.error(&format!("{count} paths are not possible; expected two")));
        };
        if a == b {
            return Err(item.error(&format!("{0} and {0} are one path; expected two", names[a])));
        }
        let swap = Swap {
            time: time.duration(Limits::new(0.0, 1e5, "s"), 1.0)?,
            paths: [a, b],
        };
        table.finish()?;
        Ok(swap)
    };
    item.tables()?.into_iter().map(read).collect()
}

fn read_transport(root: &Table<'_>) -> Result<Transport> {
    let mut transport = Transport::default();
    let Some(item) = root.optional("transport") else {
        return Ok(transport);
    };
    let table = item.table()?.named("transport");
    let megabytes = |key| {
        let item = table.optional(key);
        item.map(|item| Ok((item.fixed(Limits::new(0.001, 1e4, "MB"))? * 1e6) as u64))
            .transpose()
    };
    transport.receive_window = megabytes("receive_window_mb")?;
    transport.send_buffer = megabytes("send_buffer_mb")?;
    if let Some(item) = table.optional("mtu") {
        transport.mtu = item.integer(1200, 1452)? as u16;
        transport.max_mtu = transport.mtu;
    }
    if let Some(item) = table.optional("max_mtu") {
        transport.max_mtu = item.integer(u64::from(transport.mtu), 1452)? as u16;
    }
    if let Some(item) = table.optional("max_ack_delay_ms") {
        transport.max_ack_delay = item.duration(Limits::new(0.0, 1000.0, "ms"), 1e-3)?;
    }
    if let Some(item) = table.optional("ack_every") {
        transport.ack_every = item.integer(1, 1000)?;
    }
    if let Some(item) = table.optional("packet_threshold") {
        transport.packet_threshold = item.integer(3, 1 << 20)?;
    }
    if let Some(item) = table.optional("time_threshold") {
        transport.time_threshold = item.fixed(Limits::new(1.0, 16.0, "round trips"))?;
    }
    if let Some(item) = table.optional("ack_on_fastest_path") {
        transport.ack_on_fastest_path = item.boolean()?;
    }
    if let Some(item) = table.optional("pacing") {
        transport.pacing = item.boolean()?;
    }
    if let Some(item) = table.optional("show_queues") {
        transport.show_queues = item.boolean()?;
    }
    table.finish()?;
    Ok(transport)
}
