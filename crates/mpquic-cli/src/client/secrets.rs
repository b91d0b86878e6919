//! Credentials for servers, from a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use http::Uri;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::uri::Authority;
use mpquic_proxy::Credential;

use crate::options::parse_url;
use crate::process::failure::{Cause, Failure};
use crate::process::state;

/// The port of https.
const PORT: u16 = 443;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SecretsArgs {
    /// Send servers the credentials in this file, one per line: `HOST[:PORT] basic NAME:PASSWORD`
    /// or `HOST[:PORT] bearer TOKEN`. Each credential goes to its own server only, also after a
    /// redirection. The file must be private: only its owner may read it
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
}

impl SecretsArgs {
    /// Reads the file, if one is named.
    pub(crate) fn read(&self) -> Result<Secrets, Failure> {
        let read = self.credentials.as_deref().map(Secrets::read);
        read.transpose().map(Option::unwrap_or_default)
    }
}

/// Credentials, each for one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    /// Their file; `None` without `--credentials`.
    file: Option<PathBuf>,
    lines: Vec<(Server, HeaderValue)>,
}

/// A host name in lower case, and a port.
type Server = (String, u16);

fn server(authority: &Authority) -> Server {
    let host = authority.host().to_ascii_lowercase();
    (host, authority.port_u16().unwrap_or(PORT))
}

impl Secrets {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = private_text(path).map_err(|error| {
            let told = format!("--credentials {}: {error}", path.display());
            match error.kind() {
                io::ErrorKind::PermissionDenied => Failure::usage(told),
                _ => Cause::File.failed(told),
            }
        })?;
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let secrets: Result<Vec<_>, _> = lines
            .map(|(number, line)| {
                Self::line(line).map_err(|expected| {
                    // The message leaves out the line, which is a secret.
                    let (path, number) = (path.display(), number + 1);
                    Failure::usage(format!("--credentials {path}, line {number}: {expected}"))
                })
            })
            .collect();
        Ok(Self {
            file: Some(path.to_owned()),
            lines: secrets?,
        })
    }

    fn line(line: &str) -> Result<(Server, HeaderValue), String> {
        let (host, credential) = line
            .split_once(char::is_whitespace)
            .ok_or("expected HOST[:PORT], and then `basic NAME:PASSWORD` or `bearer TOKEN`")?;
        let authority: Authority = host
            .parse()
            .map_err(|_| "expected HOST[:PORT] at its beginning")?;
        let has_user = authority.as_str().contains('@');
        if has_user || authority.host().is_empty() {
            return Err("expected HOST[:PORT] at its beginning".to_owned());
        }
        // An invalid port must not become the default port.
        let named = parse_url(&format!("https://{authority}/")).ok();
        let named = named.as_ref().and_then(Uri::authority).map(server);
        let server =
            named.ok_or("expected HOST[:PORT] at its beginning, with a port from 0 to 65535")?;
        let credential: Credential = credential
            .trim()
            .parse()
            .map_err(|error| format!("after the host: {error}"))?;
        Ok((server, credential.to_field()))
    }

    /// Adds the credential for the server of this URL, unless `-H` has set the field. The URL must
    /// name the server that gets the request.
    pub(crate) fn add_to(&self, url: &Uri, fields: &mut HeaderMap) {
        if let Some(credential) = self.of(url)
            && !fields.contains_key(AUTHORIZATION)
        {
            fields.insert(AUTHORIZATION, credential.clone());
        }
    }

    /// The credential for the server of this URL.
    fn of(&self, url: &Uri) -> Option<&HeaderValue> {
        let server = url.authority().map(server)?;
        let found = self.lines.iter().find(|(of, _)| *of == server);
        found.map(|(_, credential)| credential)
    }

    /// What the user can do after the answer 401 of the server of this URL. `fields` are those of
    /// `-H`.
    pub(crate) fn hint(&self, url: &Uri, fields: &HeaderMap) -> String {
        if fields.contains_key(AUTHORIZATION) {
            return "the server does not accept the Authorization of -H".to_owned();
        }
        let Some(file) = self.file.as_deref().map(Path::display) else {
            return "--credentials FILE sends the password or token of a user".to_owned();
        };
        let (host, port) = url.authority().map(server).unwrap_or_default();
        match self.of(url) {
            Some(_) => format!(
                "the server does not accept the name and password, or the token, of {host}:{port} in {file}"
            ),
            None => format!("{file} has no line for {host}:{port}"),
        }
    }
}

/// The text of a file that only its owner may read.
fn private_text(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if let Some(told) = state::open_to_others(&file.metadata()?) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, told));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::client::protocol::Ask;
    use crate::client::redirect;

    fn read(text: &str, mode: u32) -> Result<Secrets, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, text).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let _ = mode;
        Secrets::read(&path)
    }

    fn shown(secrets: &Secrets, url: &str) -> Option<String> {
        let mut fields = HeaderMap::new();
        secrets.add_to(&url.parse().unwrap(), &mut fields);
        let shown = fields.get(AUTHORIZATION)?;
        assert!(shown.is_sensitive());
        shown.to_str().ok().map(str::to_owned)
    }

    #[test]
    fn each_server_sees_its_own() {
        let text =
            "# comment\n\nExample.org: basic a:b:c\nhost:4433   bearer abc\n[::1]:1 bearer d\n";
        let secrets = read(text, 0o600).unwrap();
        let shown = |url| shown(&secrets, url);
        // The base64 of `a:b:c`.
        assert_eq!(
            shown("https://example.org/x").as_deref(),
            Some("Basic YTpiOmM=")
        );
        assert_eq!(
            shown("https://EXAMPLE.org:443/").as_deref(),
            Some("Basic YTpiOmM=")
        );
        assert_eq!(shown("https://host:4433/").as_deref(), Some("Bearer abc"));
        assert_eq!(shown("https://[::1]:1/").as_deref(), Some("Bearer d"));
        for other in [
            "https://example.org:4433/",
            "https://host/",
            "https://www.example.org/",
        ] {
            assert_eq!(shown(other), None, "{other}");
        }
    }

    #[test]
    fn after_an_answer_401_the_user_learns_why() {
        let url: Uri = "https://Host:4433/x".parse().unwrap();
        let told = |secrets: &Secrets| secrets.hint(&url, &HeaderMap::new());
        let none = "--credentials FILE sends the password or token of a user";
        assert_eq!(told(&Secrets::default()), none);
        let other = read("host bearer abc", 0o600).unwrap();
        assert!(told(&other).ends_with("/file has no line for host:4433"));
        let wrong = read("host:4433 bearer abc", 0o600).unwrap();
        let wrong = told(&wrong);
        assert!(
            wrong.contains("does not accept") && wrong.contains("of host:4433 in "),
            "{wrong}"
        );
        assert!(!wrong.contains("abc"), "the token stays secret");
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, HeaderValue::from_static("mine"));
        assert!(other.hint(&url, &fields).ends_with("Authorization of -H"));
    }

    #[test]
    fn field_of_the_user_overrides_the_credential() {
        let secrets = read("host bearer abc", 0o600).unwrap();
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, HeaderValue::from_static("mine"));
        secrets.add_to(&"https://host/".parse().unwrap(), &mut fields);
        assert_eq!(fields[AUTHORIZATION], "mine");
    }

    /// A redirection carries no credentials to another server, even if the file has a credential
    /// for it.
    #[test]
    fn no_redirection_takes_credentials_to_another_server() {
        let secrets = read("host bearer abc\nother bearer def", 0o600).unwrap();
        let url = "https://host/a".parse().unwrap();
        let mut ask = Ask::get(&url);
        secrets.add_to(&url, &mut ask.fields);
        let followed = |location| redirect::follow(&ask, StatusCode::FOUND, location).unwrap();
        assert!(followed("/b").fields.contains_key(AUTHORIZATION));
        for other in ["https://other/b", "https://host:4433/b", "//evil.example/"] {
            assert!(
                !followed(other).fields.contains_key(AUTHORIZATION),
                "{other}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        for mode in [0o640, 0o604, 0o660, 0o610] {
            let failure = read("host bearer abc", mode).unwrap_err();
            let told = failure.message();
            assert!(told.contains("chmod 600") && failure.code() == 2, "{told}");
        }
        assert!(read("host bearer abc", 0o400).is_ok());
    }

    #[test]
    fn faults_are_told_without_the_secret() {
        for wrong in [
            "host",
            "host basic secret",
            "host secret:x",
            "user@host bearer secret",
            "https://host bearer secret",
            ":1 bearer secret",
            "host:65536 bearer secret",
            "host:+443 bearer secret",
            "[::1]:x bearer secret",
        ] {
            let failure = read(&format!("# first\n{wrong}"), 0o600).unwrap_err();
            let told = failure.message();
            assert!(
                told.contains("line 2") && !told.contains("secret"),
                "{told}"
            );
        }
        let none = Secrets::read(Path::new("/missing/file")).unwrap_err();
        assert!(none.message().starts_with("--credentials /missing/file: "));
    }
}
