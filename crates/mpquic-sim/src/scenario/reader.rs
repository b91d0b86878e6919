//! Reads TOML, and reports every mistake with file, line, field and the accepted values.

use std::cell::RefCell;
use std::time::Duration;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::number::{Limits, Number, Parameter, Source};
use crate::policies::Policies;

/// A mistake in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScenarioError {
    /// The file, by the caller's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field, its mistake, and the accepted values.
    pub problem: String,
}

pub(super) type Result<T> = std::result::Result<T, ScenarioError>;

/// The text of a file, and the parameters found so far.
pub(super) struct Text<'a> {
    file: &'a str,
    text: &'a str,
    policies: &'a Policies,
    pub(super) parameters: RefCell<Vec<Parameter>>,
}

impl<'a> Text<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, policies: &'a Policies) -> Self {
        Self {
            file,
            text,
            policies,
            parameters: RefCell::default(),
        }
    }

    pub(super) fn error(&self, offset: usize, problem: impl Into<String>) -> ScenarioError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        ScenarioError {
            file: self.file.into(),
            line: before.matches('\n').count() + 1,
            problem: problem.into(),
        }
    }

    pub(super) fn parse(&self) -> Result<DeTable<'a>> {
        let parsed = DeTable::parse(self.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            self.error(offset, one_line(error.message()))
        })?;
        Ok(parsed.into_inner())
    }
}

fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join(", ")
}

/// A TOML table. The reader reads fields by name, and any unread field is a mistake.
pub(super) struct Table<'a> {
    text: &'a Text<'a>,
    table: &'a DeTable<'a>,
    /// A description of the table that precedes the names of its fields in messages: empty or `path
    /// wifi: `.
    place: String,
    offset: usize,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    pub(super) fn root(text: &'a Text<'a>, table: &'a DeTable<'a>) -> Self {
        Self {
            text,
            table,
            place: String::new(),
            offset: 0,
            known: RefCell::default(),
        }
    }

    /// Sets the description of the table for messages.
    pub(super) fn named(mut self, place: &str) -> Self {
        self.place = format!("{place}: ");
        self
    }

    pub(super) fn optional(&self, key: &'static str) -> Option<Item<'a>> {
        self.known.borrow_mut().push(key);
        let (name, value) = self.table.get_key_value(key)?;
        Some(Item {
            text: self.text,
            field: format!("{}{key}", self.place),
            key: name.get_ref().to_string(),
            offset: value.span().start,
            value: value.get_ref(),
        })
    }

    pub(super) fn required(&self, key: &'static str) -> Result<Item<'a>> {
        self.optional(key)
            .ok_or_else(|| self.error(format!("`{key}` is missing")))
    }

    /// The first of several fields that exclude each other.
    pub(super) fn one_of(&self, keys: &[&'static str]) -> Result<Option<(usize, Item<'a>)>> {
        let mut found = None;
        for (index, key) in keys.iter().enumerate() {
            if let Some(item) = self.optional(key) {
                if found.is_some() {
                    let keys = keys.join("`, `");
                    return Err(item.error(&format!("only one of `{keys}` may be given")));
                }
                found = Some((index, item));
            }
        }
        Ok(found)
    }

    pub(super) fn error(&self, problem: impl AsRef<str>) -> ScenarioError {
        let problem = format!("{}{}", self.place, problem.as_ref());
        self.text.error(self.offset, problem)
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Marks fields as known although they were not read.
    pub(super) fn also_known(&self, keys: &[&'static str]) {
        self.known.borrow_mut().extend(keys);
    }

    /// Ends reading; all known fields have been read.
    pub(super) fn finish(self) -> Result<()> {
        let known = self.known.borrow();
        for key in self.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let mut known = known.clone();
                known.sort_unstable();
                known.dedup();
                let problem = format!(
                    "{}unknown field `{}`; there are: {}",
                    self.place,
                    key.get_ref(),
                    known.join(", ")
                );
                return Err(self.text.error(key.span().start, problem));
            }
        }
        Ok(())
    }
}

/// A field with its value.
pub(super) struct Item<'a> {
    text: &'a Text<'a>,
    field: String,
    key: String,
    offset: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Item<'a> {
    /// The policies that names of schedulers and controllers refer to.
    pub(super) fn policies(&self) -> &'a Policies {
        self.text.policies
    }

    pub(super) fn error(&self, problem: &str) -> ScenarioError {
        self.text
            .error(self.offset, format!("{}: {problem}", self.field))
    }

    /// An error with the given value and the accepted values.
    pub(super) fn expected(&self, what: &str) -> ScenarioError {
        let given = match self.value {
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a table".into(),
        };
        self.error(&format!("{given} is not possible; expected {what}"))
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.expected("a text"))
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        self.value
            .as_bool()
            .ok_or_else(|| self.expected("true or false"))
    }

    /// The value of one of these names.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let chosen = choices
            .iter()
            .find(|(name, _)| self.value.as_str() == Some(name));
        chosen.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            self.expected(&format!("one of: {}", names.join(", ")))
        })
    }

    fn float(&self) -> Option<f64> {
        match self.value {
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
                Some(number as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }

    fn check(&self, value: f64, limits: &Limits) -> Result<f64> {
        if limits.contains(value) {
            Ok(value)
        } else {
            Err(self.error(&format!("{value} is not possible; expected {limits}")))
        }
    }

    /// A number that is the same in all runs.
    pub(super) fn fixed(&self, limits: Limits) -> Result<f64> {
        let Some(value) = self.float() else {
            return Err(self.expected(&limits.to_string()));
        };
        self.check(value, &limits)
    }

    pub(super) fn integer(&self, min: u64, max: u64) -> Result<u64> {
        let value = self.fixed(Limits::new(min as f64, max as f64, ""))?;
        if value.fract() != 0.0 {
            return Err(self.expected("a whole number"));
        }
        Ok(value as u64)
    }

    /// A duration in units of `unit` seconds.
    pub(super) fn duration(&self, limits: Limits, unit: f64) -> Result<Duration> {
        Ok(Duration::from_secs_f64(self.fixed(limits)? * unit))
    }

    /// A number that may differ between runs: a number, `"LO..HI"` (drawn), `"binomial(N, P)"`
    /// (drawn) or a list of numbers (swept). `name` is its name in results.
    pub(super) fn number(&self, limits: Limits, name: &str) -> Result<Number> {
        if let Some(value) = self.float() {
            return self.check(value, &limits).map(Number::Fixed);
        }
        let expected = || {
            self.expected(&format!(
                "{limits}, or \"LOW..HIGH\", \"binomial(N, P)\" or a list of numbers"
            ))
        };
        let parameter = match self.value {
            DeValue::String(text) => {
                let parameter = Parameter::parse(name, text).ok_or_else(expected)?;
                let (low, high) = parameter.bounds();
                self.check(low, &limits)?;
                self.check(high, &limits)?;
                parameter
            }
            DeValue::Array(_) => {
                let values: Result<Vec<f64>> = self
                    .items()?
                    .iter()
                    .map(|item| item.fixed(limits))
                    .collect();
                Parameter::swept(name, values?)
            }
            _ => return Err(expected()),
        };
        Ok(self.register(parameter))
    }

    /// The bounds of `"LO..HI"`, or `None` for any other value.
    pub(super) fn range(&self, limits: Limits) -> Result<Option<(f64, f64)>> {
        let parameter = self
            .value
            .as_str()
            .and_then(|text| Parameter::parse("", text));
        let Some(Source::Uniform(low, high)) = parameter.map(|parameter| parameter.source) else {
            return Ok(None);
        };
        Ok(Some((
            self.check(low, &limits)?,
            self.check(high, &limits)?,
        )))
    }

    fn register(&self, parameter: Parameter) -> Number {
        let mut parameters = self.text.parameters.borrow_mut();
        parameters.push(parameter);
        Number::Varied(parameters.len() - 1)
    }

    /// One of a list of names, or several of them (swept), as an index into `choices`.
    pub(super) fn swept_choice(&self, choices: &[String], name: &str) -> Result<Number> {
        let index = |item: &Item<'_>| {
            let found = choices
                .iter()
                .position(|choice| Some(choice.as_str()) == item.value.as_str());
            found.ok_or_else(|| item.expected(&format!("one of: {}", choices.join(", "))))
        };
        if !self.value.is_array() {
            return index(self).map(|index| Number::Fixed(index as f64));
        }
        let items = self.items()?;
        let indexes: Result<Vec<_>> = items.iter().map(index).collect();
        let labels = indexes?
            .into_iter()
            .map(|index| (index as f64, choices[index].clone()));
        Ok(self.register(Parameter::swept_labels(name, labels.collect())))
    }

    /// The entries of a list, which must not be empty.
    pub(super) fn items(&self) -> Result<Vec<Item<'a>>> {
        let array = self.value.as_array().filter(|array| !array.is_empty());
        let array = array.ok_or_else(|| self.expected("a list with at least one entry"))?;
        let item = |value: &'a toml::Spanned<DeValue<'a>>| Item {
            text: self.text,
            field: self.field.clone(),
            key: self.key.clone(),
            offset: value.span().start,
            value: value.get_ref(),
        };
        Ok(array.iter().map(item).collect())
    }

    /// A text or a list of texts.
    pub(super) fn texts(&self) -> Result<Vec<(Item<'a>, &'a str)>> {
        if self.value.is_str() {
            let item = Item {
                text: self.text,
                field: self.field.clone(),
                key: self.key.clone(),
                offset: self.offset,
                value: self.value,
            };
            return Ok(vec![(item, self.text()?)]);
        }
        let items = self.items()?.into_iter();
        items
            .map(|item| {
                let text = item.text()?;
                Ok((item, text))
            })
            .collect()
    }

    /// A table, or each of a list of tables.
    pub(super) fn tables(&self) -> Result<Vec<Table<'a>>> {
        if self.value.is_table() {
            return Ok(vec![self.table()?]);
        }
        self.items()?.iter().map(Item::table).collect()
    }

    pub(super) fn table(&self) -> Result<Table<'a>> {
        let Some(table) = self.value.as_table() else {
            return Err(self.expected("a table"));
        };
        Ok(Table {
            text: self.text,
            table,
            place: format!("{}: ", self.key),
            offset: self.offset,
            known: RefCell::default(),
        })
    }
}

/// Checks the name of a scheduler.
pub(super) fn scheduler(item: &Item<'_>, name: &str) -> Result<String> {
    match item.policies().scheduler(name) {
        Ok(_) => Ok(name.into()),
        Err(error) => Err(item.error(&error.to_string())),
    }
}

/// Checks the name of a controller.
pub(super) fn controller(item: &Item<'_>, name: &str) -> Result<String> {
    match item.policies().controller(name) {
        Ok(_) => Ok(name.into()),
        Err(error) => Err(item.error(&error.to_string())),
    }
}
