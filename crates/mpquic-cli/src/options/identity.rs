//! A server's certificate and key: given by the user, kept from an earlier run, or new.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use mpquic_core::crypto::rustls::{ClientAuthorities, QuicServerConfig, SharedTickets, WallClock};
use mpquic_tokio::ServerConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use crate::options::TlsArgs;
use crate::options::reach::Reach;
use crate::options::trust::{Fingerprint, NO_CERTIFICATE, Shown, refused};
use crate::process::failure::{Cause, Failure};
use crate::process::state::{create_private, make_directory};

/// The file with certificate and private key.
const FILE: &str = "serve.pem";

/// About a file without a private key.
const NO_KEY: &str = "no private key in this file; expected PEM text with `-----BEGIN PRIVATE KEY-----`, \
                      without a password";

/// A certificate and its key.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate chain and its key. Beside each file stands the beginning of messages
    /// about the file, such as its option.
    pub(crate) fn read(chain: (&str, &Path), key: (&str, &Path)) -> Result<Self, Failure> {
        let unusable = |(about, path): (&str, &Path), none: &str, error: pem::Error| {
            let told = match error {
                pem::Error::NoItemsFound => none.to_owned(),
                error => error.to_string(),
            };
            Failure::usage(format!("{about} {}: {told}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(chain.1)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(|found| {
                if found.is_empty() {
                    Err(pem::Error::NoItemsFound)
                } else {
                    Ok(found)
                }
            })
            .map_err(|error| unusable(chain, NO_CERTIFICATE, error))?;
        let found = PrivateKeyDer::from_pem_file(key.1);
        Ok(Self {
            chain: certificates,
            key: found.map_err(|error| unusable(key, NO_KEY, error))?,
        })
    }

    /// The identity of an earlier server with the same directory, or a new identity, which the
    /// directory keeps. Returns true for a new identity.
    pub(crate) fn kept(
        directory: &Path,
        addresses: &[SocketAddr],
    ) -> Result<(Self, bool), Failure> {
        let path = directory.join(FILE);
        if !path.exists() {
            let cannot_keep = |error: io::Error| {
                Cause::File.failed(format_args!("cannot keep {}: {error}", path.display()))
            };
            make_directory(directory).map_err(cannot_keep)?;
            let (made, text) = Self::make_pem(addresses)?;
            match keep(directory, &path, &text) {
                Ok(()) => return Ok((made, true)),
                // Another server was faster, and both servers use its identity.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_keep(error)),
            }
        }
        let file = ("cannot use", path.as_path());
        let kept = Self::read(file, file);
        let kept = kept.map_err(|failure| match failure {
            Failure::Usage(message) => Failure::Usage(format!(
                "{message}; remove the file to make a new identity, which clients have to pin again"
            )),
            other => other,
        });
        Ok((kept?, false))
    }

    /// Makes a self-signed certificate for these addresses.
    pub(crate) fn make(addresses: &[SocketAddr]) -> Result<Self, Failure> {
        Self::make_pem(addresses).map(|(made, _)| made)
    }

    fn make_pem(addresses: &[SocketAddr]) -> Result<(Self, String), Failure> {
        let mut names = vec!["localhost".to_owned()];
        names.extend(addresses.iter().map(|address| address.ip().to_string()));
        let made = rcgen::generate_simple_self_signed(names).map_err(Failure::other)?;
        let text = made.cert.pem() + &made.signing_key.serialize_pem();
        let identity = Self {
            chain: vec![made.cert.der().clone()],
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        };
        Ok((identity, text))
    }

    /// The fingerprint of the certificate.
    pub(crate) fn fingerprint(&self) -> Result<Fingerprint, Failure> {
        let fingerprint = self.chain.first().map(Fingerprint::of);
        fingerprint.ok_or_else(|| Failure::other("no certificate"))
    }

    /// A key for another purpose. The key is the same after a restart.
    pub(crate) fn derived_key(&self, purpose: &str) -> [u8; 32] {
        let hash = Sha256::new().chain_update(purpose).chain_update([0]);
        hash.chain_update(self.key.secret_der()).finalize().into()
    }

    /// Tickets for servers with this identity and the same roots for client certificates. These
    /// servers resume each other's sessions. A ticket names the client, so a resumed session needs
    /// no certificate.
    pub(crate) fn tickets(&self, clients: Option<&RootCertStore>) -> Arc<SharedTickets> {
        let mut purpose = String::from("mpquic TLS sessions");
        if let Some(clients) = clients {
            let mut keys: Vec<_> = (clients.roots.iter())
                .map(|root| Sha256::digest(&root.subject_public_key_info))
                .collect();
            keys.sort_unstable();
            purpose += &format!(" of clients of {keys:?}");
        }
        Arc::new(SharedTickets::new(self.derived_key(&purpose)))
    }

    /// A QUIC configuration with this identity. Tokens from before a restart stay valid. With
    /// `clients`, every client needs a certificate of these roots. With `tickets`, 0-RTT data is
    /// refused.
    pub(crate) fn config(
        &self,
        tls: TlsArgs,
        alpn: &[&[u8]],
        clients: Option<RootCertStore>,
        tickets: Option<Arc<SharedTickets>>,
    ) -> Result<ServerConfig, Failure> {
        let token_key = self.derived_key("mpquic address validation tokens");
        let mut config = self.tls_config(tls, alpn, clients)?;
        config.max_early_data_size = u32::MAX;
        config.key_log = Arc::new(rustls::KeyLogFile::new());
        let mut crypto = QuicServerConfig::new(Arc::new(config)).map_err(unusable)?;
        if let Some(tickets) = tickets {
            crypto = crypto.with_shared_tickets(tickets);
        }
        let config = ServerConfig::new(Arc::new(crypto)).map_err(Failure::other)?;
        Ok(config.token_key(token_key))
    }

    /// The certificate of a client, for servers that ask for a client certificate.
    pub(crate) fn shown_by(client: &Reach) -> Result<Option<Shown>, Failure> {
        let (Some(cert), Some(key)) = (&client.client_cert, &client.client_key) else {
            return Ok(None);
        };
        let Self { chain, key, .. } = Self::read(("--client-cert", cert), ("--client-key", key))?;
        Ok(Some((chain, key)))
    }

    /// A TLS configuration for TCP with this identity. With `clients`, every client needs a
    /// certificate of these roots.
    pub(crate) fn tls(
        &self,
        tls: TlsArgs,
        alpn: &[&[u8]],
        clients: Option<RootCertStore>,
    ) -> Result<Arc<rustls::ServerConfig>, Failure> {
        Ok(Arc::new(self.tls_config(tls, alpn, clients)?))
    }

    /// The common part of both configurations.
    fn tls_config(
        &self,
        tls: TlsArgs,
        alpn: &[&[u8]],
        clients: Option<RootCertStore>,
    ) -> Result<rustls::ServerConfig, Failure> {
        let provider = Arc::new(tls.provider());
        let clock = Arc::new(WallClock);
        let builder = rustls::ServerConfig::builder_with_details(provider.clone(), clock)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = ClientAuthorities::new(roots, provider).map_err(Failure::usage)?;
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(|error| unusable(refused(&error)))?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("cannot use the certificate: {error}"))
}

/// Writes a private file, whole or not at all. An existing file stays.
fn keep(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let new = directory.join(format!("{FILE}.{}.new", std::process::id()));
    // A killed process with the same number may have left a file.
    let _ = fs::remove_file(&new);
    // Only the name of the whole file may be taken by another server.
    let written = create_private(&new)
        .map_err(io::Error::other)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
        })
        .and_then(|()| fs::hard_link(&new, path));
    let _ = fs::remove_file(&new);
    written
}

#[cfg(test)]
mod tests {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_refused_in_words() {
        let address = ["192.0.2.7:443".parse().unwrap()];
        let [mut one, other] = [(); 2].map(|()| Identity::make(&address).unwrap());
        one.key = other.key;
        let refused = one.tls(TlsArgs::default(), &[], None).unwrap_err();
        let told = refused.message();
        assert!(told.contains("does not belong"), "{told}");
    }

    #[test]
    fn a_certificate_names_the_addresses_that_are_listened_on() {
        let addresses = ["192.0.2.7:443", "[2001:db8::1]:5"];
        let addresses = addresses.map(|address| address.parse().unwrap());
        let identity = Identity::make(&addresses).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(identity.chain[0].clone()).unwrap();
        let provider = Arc::new(TlsArgs::default().provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let is_named = |name: &'static str| {
            let name = ServerName::try_from(name).unwrap();
            let now = UnixTime::now();
            let verified = verifier.verify_server_cert(&identity.chain[0], &[], &name, &[], now);
            verified.is_ok()
        };
        for name in ["localhost", "192.0.2.7", "2001:db8::1"] {
            assert!(is_named(name), "{name}");
        }
        for name in ["192.0.2.8", "example.org"] {
            assert!(!is_named(name), "{name}");
        }
    }

    /// An update of the tool keeps tokens, tickets and resets valid.
    #[test]
    fn derived_keys_are_those_of_earlier_versions() {
        let identity = Identity::make(&[]).unwrap();
        let text = [b"purpose\0", identity.key.secret_der()].concat();
        assert_eq!(
            identity.derived_key("purpose")[..],
            Sha256::digest(text)[..]
        );
    }

    /// Another server may start at the same time, be faster, and have written only a part of the
    /// file.
    #[cfg(unix)]
    #[test]
    fn existing_identity_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        // A dangling link: the file cannot be found and cannot be created.
        std::os::unix::fs::symlink("nothing", directory.path().join(FILE)).unwrap();
        let failure = Identity::kept(directory.path(), &[]).err().unwrap();
        assert_eq!(failure.code(), 2, "{failure:?}");
        let told = "remove the file to make a new identity, which clients have to pin again";
        assert!(failure.message().ends_with(told), "{failure:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Whoever may write to the directory could lead the key to another file, or read the key
    /// there.
    #[cfg(unix)]
    #[test]
    fn a_key_goes_to_a_new_file_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        fs::write(&other, "precious").unwrap();
        let state = directory.path().join("a/state");
        fs::create_dir_all(&state).unwrap();
        let new = state.join(format!("{FILE}.{}.new", std::process::id()));
        std::os::unix::fs::symlink(&other, &new).unwrap();
        assert!(Identity::kept(&state, &[]).unwrap().1);
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        let file = fs::symlink_metadata(state.join(FILE)).unwrap();
        assert!(file.is_file());
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
        // A directory at this name is not removed.
        fs::remove_file(state.join(FILE)).unwrap();
        fs::create_dir(&new).unwrap();
        let failure = Identity::kept(&state, &[]).err().unwrap();
        assert_eq!(failure.cause(), Some(Cause::File), "{failure:?}");
        let state = directory.path().join("b");
        Identity::kept(&state, &[]).unwrap();
        let mode = fs::metadata(&state).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn an_identity_lasts() {
        let directory = tempfile::tempdir().unwrap();
        // The directory is created.
        let directory = directory.path().join("a/b");
        let (made, is_new) = Identity::kept(&directory, &[]).unwrap();
        assert!(is_new);
        let (kept, is_new) = Identity::kept(&directory, &[]).unwrap();
        assert!(!is_new);
        assert_eq!(kept.fingerprint(), made.fingerprint());
        assert_eq!(kept.derived_key("a"), made.derived_key("a"));
        assert_ne!(kept.derived_key("a"), made.derived_key("b"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(directory.join(FILE)).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn sessions_are_good_where_the_same_clients_are_asked_for() {
        use rustls::server::ProducesTickets;

        let identity = Identity::make(&[]).unwrap();
        let roots = || {
            let mut roots = RootCertStore::empty();
            roots
                .add(Identity::make(&[]).unwrap().chain[0].clone())
                .unwrap();
            roots
        };
        let (one, other) = (roots(), roots());
        let ticket = identity.tickets(Some(&one)).encrypt(b"who").unwrap();
        let opened = |roots| identity.tickets(roots).decrypt(&ticket);
        assert_eq!(opened(Some(&one)).unwrap(), b"who");
        assert_eq!((opened(Some(&other)), opened(None)), (None, None));
        // The order of the authorities makes no difference.
        let (mut both, mut reversed) = (one.clone(), other.clone());
        both.roots.extend(other.roots);
        reversed.roots.extend(one.roots);
        let ticket = identity.tickets(Some(&both)).encrypt(b"who").unwrap();
        let opened = identity.tickets(Some(&reversed)).decrypt(&ticket);
        assert_eq!(opened.unwrap(), b"who");
    }

    #[test]
    fn damaged_identity_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "nothing").unwrap();
        assert!(Identity::kept(directory.path(), &[]).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"nothing");
    }

    #[test]
    fn files_without_a_certificate_or_key_are_named_with_their_options() {
        let directory = tempfile::tempdir().unwrap();
        let (_, text) = Identity::make_pem(&[]).unwrap();
        let key_at = text.find("-----BEGIN PRIVATE").unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (cert, key) = (
            file("cert.pem", &text[..key_at]),
            file("key.pem", &text[key_at..]),
        );
        let (other, none) = (file("other", "other"), directory.path().join("none"));
        let told = |cert: &Path, key: &Path| {
            let read = Identity::read(("--cert", cert), ("--key", key));
            read.err().map(|failure| failure.message().to_owned())
        };
        assert_eq!(told(&cert, &key), None);
        for wrong in [&key, &other] {
            let expected = format!("--cert {}: {NO_CERTIFICATE}", wrong.display());
            assert_eq!(told(wrong, &key), Some(expected));
        }
        for wrong in [&cert, &other] {
            let expected = format!("--key {}: {NO_KEY}", wrong.display());
            assert_eq!(told(&cert, wrong), Some(expected));
        }
        let told = told(&none, &key).unwrap();
        assert!(
            told.starts_with(&format!("--cert {}: ", none.display())),
            "{told}"
        );
        assert!(!told.contains("no certificate"), "{told}");
    }

    /// Two servers that start at the same time.
    #[test]
    fn the_first_one_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        keep(directory.path(), &path, "first").unwrap();
        let late = keep(directory.path(), &path, "second").unwrap_err();
        assert_eq!(late.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
