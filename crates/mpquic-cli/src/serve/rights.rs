//! Rights of users to read and write files.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use clap::Args;
use http::header::{AUTHORIZATION, HeaderMap};
use mpquic_core::config::InvalidOption;
use mpquic_proxy::{Credential, Credentials, Gate, Known, NotLetIn};

use crate::files::path_of;
use crate::options::credentials::read_credentials;
use crate::options::trust::Fingerprint;
use crate::process::clock;
use crate::process::failure::Failure;
use crate::text::percent::percent_decode;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RightsArgs {
    /// Serve only users with one of the credentials in this file, one per line: `basic
    /// NAME:PASSWORD` or `bearer TOKEN`
    #[arg(long, value_name = "FILE", conflicts_with = "perf")]
    pub(crate) credentials: Option<PathBuf>,
    /// Give rights on all paths below PREFIX, which ends with a slash; repeat for several. WHO is
    /// the name of a user, `users` or `anybody`; RIGHTS is `r` (read), `w` (write, with
    /// --allow-put) or `rw` [default: users:rw:/ if there are users, otherwise anybody:rw:/]
    #[arg(long, value_name = "WHO:RIGHTS:PREFIX", conflicts_with = "perf")]
    pub(crate) allow: Vec<Rule>,
    /// True if clients need a certificate.
    #[arg(skip)]
    pub(crate) has_certificates: bool,
}

/// Gives rights on all paths below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    who: Who,
    may_read: bool,
    may_write: bool,
    /// The first names of the paths.
    prefix: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    Anybody,
    Users,
    User(String),
}

impl FromStr for Rule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "expected WHO:RIGHTS:PREFIX, such as `alice:rw:/alice/` or `anybody:r:/pub/`";
        let (who, rest) = text.split_once(':').ok_or(EXPECTED)?;
        let (rights, prefix) = rest.split_once(':').ok_or(EXPECTED)?;
        let (may_read, may_write) = match rights {
            "r" => (true, false),
            "w" => (false, true),
            "rw" => (true, true),
            _ => return Err("RIGHTS must be `r`, `w` or `rw`"),
        };
        if !prefix.starts_with('/') || !prefix.ends_with('/') {
            return Err("PREFIX must begin and end with a slash");
        }
        let who = match who {
            "" => return Err(EXPECTED),
            "anybody" => Who::Anybody,
            "users" => Who::Users,
            name => Who::User(name.to_owned()),
        };
        let prefix = names(prefix).ok_or("PREFIX must be written as in a URL")?;
        Ok(Self {
            who,
            may_read,
            may_write,
            prefix,
        })
    }
}

/// The decoded names in a path; `None` for a wrong encoding, or for a name like `..` or with a
/// slash.
fn names(path: &str) -> Option<Vec<Vec<u8>>> {
    let segments = path_of(path).split('/');
    let segments = segments.filter(|segment| !segment.is_empty());
    let names = segments.map(percent_decode);
    let is_plain = |name: &Vec<u8>| !matches!(&name[..], b"." | b"..") && !name.contains(&b'/');
    names.map(|name| name.filter(is_plain)).collect()
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Read,
    Write,
    /// To make a directory.
    Make,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Credentials are missing or wrong.
    Unknown,
    /// The network or the user has to wait for these seconds after wrong credentials.
    Wait(u64),
    /// The user, or a client without credentials, has no right.
    Forbidden(Option<String>),
}

/// The users and their rights.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    table: RwLock<Arc<Table>>,
    gate: Gate,
}

/// Users and rules, from the options.
#[derive(Debug, Default)]
pub(crate) struct Table {
    credentials: Option<Credentials>,
    rules: Vec<Rule>,
}

/// The beginning of a request, with the users and rules of that moment.
#[derive(Debug)]
pub(crate) struct Since {
    table: Arc<Table>,
    time: SystemTime,
}

impl Since {
    /// The moment that was this long before the beginning of the request.
    pub(crate) fn before(&self, age: Duration) -> SystemTime {
        let before = self.time.checked_sub(age);
        before.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The client of a connection.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// The user of its certificate, if clients need one.
    pub(crate) certificate: Option<String>,
    known: Known,
}

impl Caller {
    /// A client with this certificate, or without one.
    pub(crate) fn of_certificate(certificate: Option<Fingerprint>) -> Self {
        let name = |fingerprint: Fingerprint| {
            let digits = fingerprint.to_string();
            let digits = digits.trim_start_matches("sha256:");
            format!("certificate-{}", digits.get(..8).unwrap_or_default())
        };
        Self {
            certificate: certificate.map(name),
            known: Known::default(),
        }
    }
}

impl Table {
    /// Reads credentials and rules. `takes_files` is true with --allow-put.
    pub(crate) fn read(args: &RightsArgs, takes_files: bool) -> Result<Self, Failure> {
        if let Some(rule) = args.allow.iter().find(|rule| rule.may_write)
            && !takes_files
        {
            let expected = "--allow-put beside it, or the right `r` alone";
            let error = InvalidOption::new("--allow", rule, expected);
            return Err(Failure::usage(error));
        }
        let users = Self::users(args)?;
        for rule in &args.allow {
            Self::check(rule, users.as_deref(), args)?;
        }
        Ok(Self::of(users, args))
    }

    /// Reads the credentials again. Rules for removed users stay, and give nobody rights.
    pub(crate) fn read_again(args: &RightsArgs) -> Result<Self, Failure> {
        Ok(Self::of(Self::users(args)?, args))
    }

    fn users(args: &RightsArgs) -> Result<Option<Vec<Credential>>, Failure> {
        let path = args.credentials.as_deref();
        path.map(read_credentials).transpose()
    }

    fn of(users: Option<Vec<Credential>>, args: &RightsArgs) -> Self {
        let has_users = users.is_some() || args.has_certificates;
        let rules = if args.allow.is_empty() {
            vec![Rule {
                who: if has_users { Who::Users } else { Who::Anybody },
                may_read: true,
                may_write: true,
                prefix: Vec::new(),
            }]
        } else {
            args.allow.clone()
        };
        Self {
            credentials: users.map(Credentials::new),
            rules,
        }
    }

    /// Refuses a rule for a user that does not exist.
    fn check(rule: &Rule, users: Option<&[Credential]>, args: &RightsArgs) -> Result<(), Failure> {
        let expected = match &rule.who {
            Who::Anybody => return Ok(()),
            Who::Users if users.is_some() || args.has_certificates => return Ok(()),
            Who::Users => "--credentials or --client-ca beside it, or `anybody`",
            Who::User(name) => {
                let users = users.unwrap_or_default();
                let is_there = users.iter().any(|user| user.name() == name);
                let is_certificate = args.has_certificates && name.starts_with("certificate-");
                if is_there || is_certificate {
                    return Ok(());
                }
                "a user of --credentials, `users` or `anybody`"
            }
        };
        let error = InvalidOption::new("--allow", rule, expected);
        Err(Failure::usage(error))
    }

    fn may(&self, user: Option<&str>, deed: Deed, path: &str) -> bool {
        // A path with invalid names is below no directory but the root.
        let names = names(path);
        let is_below = |prefix: &[Vec<u8>]| match &names {
            // The name of the rule's directory stands in the directory above, perhaps of another
            // user. MKCOL replaces nothing.
            Some(names) if deed == Deed::Write && names == prefix => prefix.is_empty(),
            Some(names) => names.starts_with(prefix),
            None => prefix.is_empty(),
        };
        self.rules.iter().any(|rule| {
            let is_meant = match &rule.who {
                Who::Anybody => true,
                Who::Users => user.is_some(),
                Who::User(name) => user == Some(name),
            };
            let has_right = match deed {
                Deed::Read => rule.may_read,
                Deed::Write | Deed::Make => rule.may_write,
            };
            is_meant && has_right && is_below(&rule.prefix)
        })
    }
}

impl Rights {
    /// Rights by these users and rules.
    pub(crate) fn new(table: Table) -> Self {
        Self {
            table: RwLock::new(Arc::new(table)),
            gate: Gate::default(),
        }
    }

    /// Replaces users and rules for new requests. The counts of wrong credentials remain.
    pub(crate) fn set(&self, table: Table) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    fn table(&self) -> Arc<Table> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.clone()
    }

    /// The users and rules at this moment.
    pub(crate) fn now(&self) -> Since {
        Since {
            table: self.table(),
            time: clock::time_of_day(),
        }
    }

    /// Allows a request of earlier users and rules again, by the users and rules of this moment.
    pub(crate) fn still_allow(
        &self,
        since: &Since,
        caller: &Caller,
        client: IpAddr,
        fields: &HeaderMap,
        asked: (Deed, &str),
    ) -> bool {
        // A second look costs a hash, and waits if somebody guesses at the credentials.
        Arc::ptr_eq(&since.table, &self.table()) || self.look(caller, client, fields, asked).is_ok()
    }

    /// Rights of everybody to read and write everything.
    pub(crate) fn open() -> Self {
        let open = Table::read(&RightsArgs::default(), true);
        Self::new(open.unwrap_or_default())
    }

    /// Checks a request; the result is its user, or `None` for a stranger.
    pub(crate) fn look(
        &self,
        caller: &Caller,
        client: IpAddr,
        fields: &HeaderMap,
        (deed, path): (Deed, &str),
    ) -> Result<Option<String>, Denied> {
        let table = self.table();
        let credentials = table.credentials.as_ref();
        let user = self.user(credentials, caller, client, fields)?;
        if table.may(user.as_deref(), deed, path) {
            return Ok(user);
        }
        if user.is_none() && credentials.is_some() {
            Err(Denied::Unknown)
        } else {
            Err(Denied::Forbidden(user))
        }
    }

    fn user(
        &self,
        credentials: Option<&Credentials>,
        caller: &Caller,
        client: IpAddr,
        fields: &HeaderMap,
    ) -> Result<Option<String>, Denied> {
        let (Some(credentials), Some(shown)) = (credentials, fields.get(AUTHORIZATION)) else {
            return Ok(caller.certificate.clone());
        };
        match self.gate.user(credentials, client, shown, &caller.known) {
            Ok(user) => Ok(Some(user)),
            Err(NotLetIn::Wrong) => Err(Denied::Unknown),
            Err(NotLetIn::Wait(wait)) => Err(Denied::Wait(wait.as_secs() + 1)),
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = match &self.who {
            Who::Anybody => "anybody",
            Who::Users => "users",
            Who::User(name) => name,
        };
        let rights = match (self.may_read, self.may_write) {
            (true, true) => "rw",
            (false, true) => "w",
            _ => "r",
        };
        write!(f, "{who}:{rights}:/")?;
        let names = self.prefix.iter();
        names
            .map(crate::text::percent::percent_encode)
            .try_for_each(|name| write!(f, "{name}/"))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn rights(lines: &str, allow: &[&str]) -> Result<Rights, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("users");
        std::fs::write(&file, lines).unwrap();
        let args = RightsArgs {
            credentials: (!lines.is_empty()).then_some(file),
            has_certificates: false,
            allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(),
        };
        Table::read(&args, true).map(Rights::new)
    }

    fn shown(credential: &str) -> HeaderMap {
        let credential: mpquic_proxy::Credential = credential.parse().unwrap();
        [(AUTHORIZATION, credential.to_field())]
            .into_iter()
            .collect()
    }

    #[test]
    fn rules_are_read_and_told() {
        for text in ["alice:rw:/alice/", "anybody:r:/", "users:w:/in%20box/"] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        for wrong in [
            "",
            "alice",
            "alice:r",
            ":r:/",
            "alice:x:/",
            "alice::/",
            "alice:r:",
            "alice:r:pub/",
            "alice:r:/pub",
            "alice:r:/../",
            "alice:r:/%2e%2e/",
            "alice:r:/%zz/",
            "alice:r:/a%2fb/",
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_for_nobody_are_refused() {
        let users = "basic alice:wonderland";
        for (lines, allow) in [(users, "bob:r:/"), ("", "alice:r:/"), ("", "users:r:/")] {
            let failure = rights(lines, &[allow]).err().unwrap();
            assert!(failure.message().contains(allow), "{}", failure.message());
        }
        assert!(rights(users, &["alice:r:/"]).is_ok());
        let read_only = RightsArgs {
            allow: vec!["anybody:w:/".parse().unwrap()],
            ..RightsArgs::default()
        };
        let failure = Table::read(&read_only, false).err().unwrap();
        assert!(
            failure.message().contains("--allow-put"),
            "{}",
            failure.message()
        );
    }

    #[tokio::test]
    async fn users_have_the_rights_that_rules_give_them() {
        let rights = rights(
            "basic alice:wonderland\nbasic bob:builder\nbearer abc",
            &[
                "anybody:r:/pub/",
                "users:r:/all/",
                "alice:rw:/alice/",
                "anybody:w:/in/",
            ],
        );
        let (rights, caller) = (rights.unwrap(), Caller::default());
        let look = |fields: &HeaderMap, deed, path: &str| {
            rights
                .look(&caller, CLIENT, fields, (deed, path))
                .map(|user| user.is_some())
        };
        let [alice, bob, token] =
            ["basic alice:wonderland", "basic bob:builder", "bearer abc"].map(shown);
        let nobody = HeaderMap::new();
        let forbidden = |name: &str| Denied::Forbidden(Some(name.to_owned()));
        use Deed::{Make, Read, Write};
        for (fields, deed, path, expected) in [
            (&nobody, Read, "/pub/a", Ok(false)),
            (&nobody, Read, "//pub//a?query", Ok(false)),
            (&nobody, Read, "/public/a", Err(Denied::Unknown)),
            (&nobody, Read, "/pub/../alice/a", Err(Denied::Unknown)),
            (&nobody, Read, "/pub/%2e%2e/alice/a", Err(Denied::Unknown)),
            (&nobody, Read, "/pub%2f../alice/a", Err(Denied::Unknown)),
            (&nobody, Read, "/", Err(Denied::Unknown)),
            (&nobody, Write, "/pub/a", Err(Denied::Unknown)),
            (&nobody, Write, "/in/a", Ok(false)),
            (&nobody, Read, "/in/a", Err(Denied::Unknown)),
            (&alice, Read, "/alice/a", Ok(true)),
            (&alice, Read, "/%61lice/a", Ok(true)),
            (&alice, Write, "/alice/a", Ok(true)),
            (&alice, Write, "/all/a", Err(forbidden("alice"))),
            (&alice, Read, "/alice", Ok(true)),
            (&alice, Write, "/alice", Err(forbidden("alice"))),
            (&alice, Write, "/alice/", Err(forbidden("alice"))),
            (&alice, Write, "/%61lice//", Err(forbidden("alice"))),
            (&alice, Make, "/alice/", Ok(true)),
            (&alice, Make, "/all/", Err(forbidden("alice"))),
            (&nobody, Write, "/in", Err(Denied::Unknown)),
            (&bob, Read, "/all/a", Ok(true)),
            (&bob, Read, "/alice/a", Err(forbidden("bob"))),
            (&token, Read, "/all/", Ok(true)),
            (
                &shown("basic alice:looking-glass"),
                Read,
                "/pub/a",
                Err(Denied::Unknown),
            ),
        ] {
            assert_eq!(look(fields, deed, path), expected, "{deed:?} {path}");
        }
    }

    #[tokio::test]
    async fn without_rules_users_have_all_rights_or_anybody_where_there_are_none() {
        let open = rights("", &[]).unwrap();
        let users = rights("basic alice:wonderland", &[]).unwrap();
        let caller = Caller::default();
        let look = |rights: &Rights, fields: &HeaderMap| {
            rights.look(&caller, CLIENT, fields, (Deed::Write, "/a"))
        };
        assert_eq!(look(&open, &HeaderMap::new()), Ok(None));
        let root = open.look(&caller, CLIENT, &HeaderMap::new(), (Deed::Write, "/"));
        assert_eq!(root, Ok(None), "there is no directory above");
        assert_eq!(look(&users, &HeaderMap::new()), Err(Denied::Unknown));
        let alice = shown("basic alice:wonderland");
        assert_eq!(look(&users, &alice), Ok(Some("alice".to_owned())));
        let certificate = Caller::of_certificate(Some(Fingerprint([7; 32])));
        let user = users.look(&certificate, CLIENT, &HeaderMap::new(), (Deed::Read, "/a"));
        assert!(user.unwrap().unwrap().starts_with("certificate-"));
    }

    /// A removed user loses rights at the next request, even over a connection with right
    /// credentials.
    #[tokio::test]
    async fn users_that_are_removed_have_no_rights_any_more() {
        let users = "basic alice:wonderland\nbasic bob:builder";
        let rules = ["users:r:/", "alice:rw:/alice/"];
        let rights = rights(users, &rules).unwrap();
        let caller = Caller::default();
        let look = |fields: &HeaderMap| rights.look(&caller, CLIENT, fields, (Deed::Read, "/a"));
        let [alice, bob] = ["basic alice:wonderland", "basic bob:builder"].map(shown);
        assert!(look(&bob).is_ok() && look(&alice).is_ok());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "basic bob:builder").unwrap();
        let args = RightsArgs {
            credentials: Some(file.path().to_owned()),
            has_certificates: false,
            allow: rules.map(|rule| rule.parse().unwrap()).to_vec(),
        };
        rights.set(Table::read_again(&args).unwrap());
        assert_eq!(look(&alice), Err(Denied::Unknown));
        assert!(look(&bob).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_takes_time() {
        let rights = rights("basic alice:wonderland", &[]).unwrap();
        let caller = Caller::default();
        let guess = [(
            AUTHORIZATION,
            HeaderValue::from_static("Basic YWxpY2U6Zw=="),
        )];
        let guess: HeaderMap = guess.into_iter().collect();
        let look = || rights.look(&caller, CLIENT, &guess, (Deed::Read, "/"));
        let looks: Vec<_> = (0..7).map(|_| look().unwrap_err()).collect();
        let mut expected = vec![Denied::Unknown; 5];
        expected.extend([Denied::Wait(2), Denied::Wait(2)]);
        assert_eq!(looks, expected);
    }
}
