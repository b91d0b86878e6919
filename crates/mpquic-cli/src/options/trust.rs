//! Checks the certificates of servers, and words the messages about refused certificates.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use mpquic_core::crypto::rustls::{
    PinVerifier, QuicClientConfig, ServerAuthorities, WallClock, certificate_fingerprint,
    roots_in_pem,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, KeyLogFile, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};

use crate::process::failure::Failure;
use crate::process::screen;
use crate::text::hex::{self, hex};

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(certificate_fingerprint(certificate))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected `sha256:` and 64 hexadecimal digits, with or without colons between them, as `mpquic serve` prints \
             them";
        let digits = text.strip_prefix("sha256:").ok_or(EXPECTED)?;
        let digits = digits.replace(':', "");
        hex::bytes(&digits).map(Self).ok_or(EXPECTED)
    }
}

/// The servers that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Servers with a certificate of an authority that the operating system trusts.
    System,
    /// Servers with a certificate that this PEM file contains, or of an authority in the file.
    Authorities(PathBuf),
    /// The server with the certificate of this fingerprint.
    Pin(Fingerprint),
    /// Any server at its first contact, and later the server with the certificate of that contact.
    FirstUse,
    /// Every server.
    Anybody,
}

/// How strictly a client checks the certificate of a server, the weakest check first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Checked {
    /// The client accepts any certificate: anybody on the way can be the server.
    #[default]
    Nothing,
    /// The certificate is that of the first contact.
    FirstUse,
    /// The certificate is pinned, or a trusted authority has issued it.
    Certificate,
}

impl Checked {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }

    /// The reason why a download with a stricter check does not continue a part file that was
    /// fetched with this check.
    pub(crate) fn too_weak(self) -> &'static str {
        match self {
            Self::Nothing => "it is of a server whose certificate was not checked",
            Self::FirstUse | Self::Certificate => {
                "the certificate of its server was checked by --first-use only"
            }
        }
    }
}

impl Trust {
    pub(crate) fn checked(&self) -> Checked {
        match self {
            Self::System | Self::Authorities(_) | Self::Pin(_) => Checked::Certificate,
            Self::FirstUse => Checked::FirstUse,
            Self::Anybody => Checked::Nothing,
        }
    }
}

/// The certificate chain of a client, and the key of its certificate.
pub(crate) type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The current server of `--first-use`.
#[derive(Debug, Default)]
struct Meeting {
    /// The certificate of the first contact.
    known: Option<Fingerprint>,
    /// The certificate of the server, if this contact is its first.
    met: Option<Fingerprint>,
}

/// Checks servers' certificates, and remembers the last refused certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Checks the certificate; `None` if there is no authority to trust.
    certificates: Option<Arc<dyn ServerCertVerifier>>,
    pinned: Option<Fingerprint>,
    /// The file of `--ca`: the issuers that are trusted instead of the system's.
    authorities: Option<PathBuf>,
    /// Set for `--first-use`.
    meeting: Option<Mutex<Meeting>>,
    provider: Arc<CryptoProvider>,
    /// Checks the signatures of handshakes, whatever the certificate.
    signatures: PinVerifier,
    /// The last refused certificate, and the reason.
    refused: Mutex<Option<(Fingerprint, rustls::Error)>>,
}

impl Verifier {
    pub(crate) fn new(trust: &Trust, provider: CryptoProvider) -> Result<Arc<Self>, Failure> {
        let provider = Arc::new(provider);
        let certificates: Option<Arc<dyn ServerCertVerifier>> = match trust {
            Trust::Pin(pin) => Some(Arc::new(PinVerifier::new(pin.0, &provider))),
            Trust::Anybody | Trust::FirstUse => {
                let verifier = PinVerifier::dangerous_trusting_any_certificate(&provider);
                Some(Arc::new(verifier))
            }
            Trust::System => authorities(system_roots(), &provider)?,
            Trust::Authorities(path) => authorities(roots_in("--ca", path)?, &provider)?,
        };
        let pinned = match trust {
            Trust::Pin(fingerprint) => Some(*fingerprint),
            Trust::System | Trust::Authorities(_) | Trust::FirstUse | Trust::Anybody => None,
        };
        let authorities = match trust {
            Trust::Authorities(path) => Some(path.clone()),
            Trust::System | Trust::Pin(_) | Trust::FirstUse | Trust::Anybody => None,
        };
        let meeting = (*trust == Trust::FirstUse).then(Mutex::default);
        Ok(Arc::new(Self {
            certificates,
            pinned,
            authorities,
            meeting,
            signatures: PinVerifier::dangerous_trusting_any_certificate(&provider),
            provider,
            refused: Mutex::new(None),
        }))
    }

    /// A TLS configuration that checks servers by this verifier, may send 0-RTT data, and logs keys
    /// to the file of `SSLKEYLOGFILE`.
    pub(crate) fn tls(self: &Arc<Self>, alpn: &[&[u8]]) -> Result<QuicClientConfig, Failure> {
        self.tls_as(None, alpn)
    }

    /// The configuration of [`Self::tls`], with the client certificate `shown` if there is one.
    pub(crate) fn tls_as(
        self: &Arc<Self>,
        shown: Option<Shown>,
        alpn: &[&[u8]],
    ) -> Result<QuicClientConfig, Failure> {
        let clock = Arc::new(WallClock);
        let config = rustls::ClientConfig::builder_with_details(self.provider.clone(), clock)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Failure::other)?
            .dangerous()
            .with_custom_certificate_verifier(self.clone());
        let mut config = match shown {
            Some((chain, key)) => (config.with_client_auth_cert(chain, key))
                .map_err(|error| Failure::usage(format!("--client-cert: {}", refused(&error))))?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.enable_early_data = true;
        config.key_log = Arc::new(KeyLogFile::new());
        QuicClientConfig::new(Arc::new(config)).map_err(Failure::other)
    }

    /// With `--first-use`, sets the known certificate of the next server; `None` for a new server.
    pub(crate) fn expect(&self, known: Option<Fingerprint>) {
        if let Some(meeting) = &self.meeting {
            let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
            *meeting = Meeting { known, met: None };
        }
    }

    /// With `--first-use`, the certificate of the last server, if this was its first contact.
    pub(crate) fn met(&self) -> Option<Fingerprint> {
        let meeting = self.meeting.as_ref()?;
        meeting.lock().unwrap_or_else(PoisonError::into_inner).met
    }

    /// The certificate of the first contact, unless the server still has this certificate.
    fn known(&self, seen: Fingerprint) -> Option<Fingerprint> {
        let meeting = self.meeting.as_ref()?;
        let known = meeting.lock().unwrap_or_else(PoisonError::into_inner).known;
        known.filter(|known| *known != seen)
    }

    /// The message about the last refused certificate.
    pub(crate) fn refusal(&self) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, error) = refused.as_ref()?;
        if let Some(known) = self.known(*seen) {
            return Some(changed(*seen, known));
        }
        if let Some(pinned) = self.pinned {
            return Some(format!(
                "the server's certificate is {seen}, but {pinned} was pinned with --pin"
            ));
        }
        let reason = reason(error);
        let (named, hint) = match &self.authorities {
            _ if reason != UNKNOWN => (String::new(), ""),
            Some(path) => (format!(": neither is in --ca {}", path.display()), ""),
            None => (
                String::new(),
                "or name its issuer with --ca PEM; or trust what the first contact shows with \
                 --first-use; ",
            ),
        };
        Some(format!(
            "the server's certificate is not trusted ({reason}{named}); if you know that its \
             fingerprint is right, use --pin {seen}; {hint}or check nothing with --insecure"
        ))
    }
}

impl Verifier {
    /// True if the last refused certificate has expired, or is not valid yet.
    pub(crate) fn depends_on_time(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused
            .as_ref()
            .is_some_and(|(_, error)| is_of_another_time(error))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = match &self.certificates {
            Some(verifier) => {
                verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let seen = Fingerprint::of(certificate);
        let checked = match self.known(seen) {
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            None => checked,
        };
        if let (Ok(_), Some(meeting)) = (&checked, &self.meeting) {
            let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
            meeting.met = meeting.known.is_none().then_some(seen);
        }
        if let Err(error) = &checked {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            *refused = Some((seen, error.clone()));
        }
        checked
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// The message about a server that had another certificate at the first contact.
pub(crate) fn changed(seen: Fingerprint, known: Fingerprint) -> String {
    format!("the server's certificate is {seen}, but it was {known} at the first contact")
}

fn authorities(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, Failure> {
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = ServerAuthorities::new(roots, provider.clone()).map_err(Failure::other)?;
    Ok(Some(Arc::new(verifier)))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::debug!(%error, "system certificates");
    }
    roots.add_parsable_certificates(loaded.certs);
    roots
}

/// The message about a file without a certificate.
pub(crate) const NO_CERTIFICATE: &str =
    "no certificate in this file; expected PEM text with `-----BEGIN CERTIFICATE-----`";

/// Trusted certificates, by which other certificates are checked.
pub(crate) type Roots = RootCertStore;

/// The certificates in the PEM file of an option. Unusable certificates are reported and left out.
pub(crate) fn roots_in(option: &str, path: &Path) -> Result<Roots, Failure> {
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{option} {}: {error}", path.display()))
    };
    let pem = std::fs::read(path).map_err(|error| unusable(&error))?;
    let (roots, left_out) = roots_in_pem(&pem);
    if roots.is_empty() {
        let none = NO_CERTIFICATE.to_owned();
        return Err(unusable(left_out.first().unwrap_or(&none)));
    }
    for reason in left_out {
        screen::say(format_args!(
            "mpquic: {option} {}: left out: {reason}",
            path.display()
        ));
    }
    Ok(roots)
}

fn is_of_another_time(error: &rustls::Error) -> bool {
    use CertificateError as Certificate;
    let rustls::Error::InvalidCertificate(certificate) = error else {
        return false;
    };
    matches!(
        certificate,
        Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. }
    )
}

/// The reason against a certificate without a trusted issuer.
const UNKNOWN: &str = "it is self-signed, or its issuer is unknown";

fn reason(error: &rustls::Error) -> &'static str {
    use CertificateError as Certificate;
    let rustls::Error::InvalidCertificate(certificate) = error else {
        return "it could not be checked";
    };
    match certificate {
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "it has expired: is the clock of this machine right?"
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "it is not valid yet: is the clock of this machine right?"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        Certificate::UnknownIssuer | Certificate::Other(_) => UNKNOWN,
        _ => "it is not valid",
    }
}

/// The reason for which TLS refuses a certificate with its key.
pub(crate) fn refused(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the private key does not belong to the certificate".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::crypto::rustls::ClientAuthorities;
    use rustls::server::danger::ClientCertVerifier;

    use super::*;
    use crate::client::session::{Purpose, Sessions};
    use crate::options::{Alpn, TlsArgs};
    use crate::process::failure::Cause;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, reach, soon};

    #[tokio::test]
    async fn untrusted_server_is_reported_with_its_fingerprint() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let (url, pin) = (served.url("/"), served.pin);
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other.pem");
        let mut params = rcgen::CertificateParams::new(["other".to_owned()]).unwrap();
        let name = rcgen::DnType::CommonName;
        params.distinguished_name.push(name, "another issuer");
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&other, params.self_signed(&key).unwrap().pem()).unwrap();
        let unknown = format!(
            "the server's certificate is not trusted (it is self-signed, or its issuer is \
             unknown); if you know that its fingerprint is right, use --pin {pin}; or name its \
             issuer with --ca PEM; or trust what the first contact shows with --first-use; or check \
             nothing with --insecure"
        );
        let named = other.to_str().unwrap();
        let unnamed = format!(
            "the server's certificate is not trusted (it is self-signed, or its issuer is \
             unknown: neither is in --ca {named}); if you know that its fingerprint is right, use \
             --pin {pin}; or check nothing with --insecure"
        );
        let wrong = Fingerprint([7; 32]);
        let pinned =
            format!("the server's certificate is {pin}, but {wrong} was pinned with --pin");
        let wrong = wrong.to_string();
        for (options, told) in [
            (&[][..], &unknown),
            (&["--ca", named], &unnamed),
            (&["--pin", &wrong], &pinned),
        ] {
            let reach = reach(options);
            let look = Purpose::look(&url, &[Alpn::H3]);
            let sessions = Sessions::new(&reach, look).unwrap().that_forget();
            let failure = soon(sessions.connection(&url)).await.err().unwrap();
            assert_eq!(
                (failure.cause(), failure.message()),
                (Some(Cause::Trust), &**told)
            );
        }
    }

    #[test]
    fn issuers_of_a_file_are_read_despite_broken_certificates() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let read = || roots_in("--ca", &path);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = made.cert.pem();
        for count in [1, 2] {
            std::fs::write(&path, pem.repeat(count)).unwrap();
            assert_eq!(read().unwrap().len(), count);
        }
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let start = format!("--ca {}: ", path.display());
        // A broken certificate, or a certificate without an end, leaves the other certificates
        // alone.
        let cut = &pem[..pem.len() / 2];
        for text in [
            format!("{broken}{pem}"),
            format!("{pem}{broken}"),
            format!("{cut}\n{pem}"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let count = text.matches("END CERT").count() - text.matches("\n!\n").count();
            assert_eq!(read().unwrap().len(), count, "{text}");
        }
        for text in [
            "",
            "nothing",
            &made.signing_key.serialize_pem(),
            broken,
            cut,
        ] {
            std::fs::write(&path, text).unwrap();
            let failure = read().unwrap_err();
            let told = failure.message();
            assert!(told.starts_with(&start) && failure.code() == 2, "{told}");
            let has_none = told.ends_with(NO_CERTIFICATE);
            assert_eq!(has_none, !text.contains("BEGIN CERT"), "{told}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read().unwrap_err().message().starts_with(&start));
        let provider = Arc::new(TlsArgs::default().provider());
        let none = authorities(RootCertStore::empty(), &provider).unwrap();
        assert!(none.is_none(), "nobody can be trusted");
    }

    #[test]
    fn refused_certificate_is_explained_in_words() {
        use CertificateError as Certificate;
        for (error, told) in [
            (
                Certificate::Expired,
                "it has expired: is the clock of this machine right?",
            ),
            (
                Certificate::NotValidYet,
                "it is not valid yet: is the clock of this machine right?",
            ),
            (Certificate::NotValidForName, "it is for another name"),
            (
                Certificate::UnknownIssuer,
                "it is self-signed, or its issuer is unknown",
            ),
            (Certificate::Revoked, "it is not valid"),
        ] {
            assert_eq!(reason(&error.into()), told);
        }
        let other = rustls::Error::General(String::new());
        assert_eq!(reason(&other), "it could not be checked");
    }

    /// A server's certificate that claims to be an authority's, as `openssl req -x509` makes it.
    fn own_authority(name: &str, until: i32) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap()
    }

    /// A server whose own certificate is in the file of `--ca` is trusted for the names and the
    /// time of the certificate, also if an authority issued the certificate.
    #[test]
    fn certificate_in_the_file_of_issuers_is_trusted_for_its_names_and_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let [trusted, other] = [0; 2].map(|_| own_authority("localhost", 4000));
        let expired = own_authority("localhost", 2001);
        std::fs::write(&path, trusted.pem() + &expired.pem()).unwrap();
        let trust = Trust::Authorities(path);
        let verifier = Verifier::new(&trust, TlsArgs::default().provider()).unwrap();
        let told = |certificate: &rcgen::Certificate, name: &'static str| {
            let name = ServerName::try_from(name).unwrap();
            let checked =
                verifier.verify_server_cert(certificate.der(), &[], &name, &[], UnixTime::now());
            checked.map(drop).map_err(|error| reason(&error))
        };
        assert_eq!(told(&trusted, "localhost"), Ok(()));
        assert_eq!(told(&trusted, "example.org"), Err("it is for another name"));
        assert_eq!(told(&other, "localhost"), Err(UNKNOWN));
        let expected = Err("it has expired: is the clock of this machine right?");
        assert_eq!(told(&expired, "localhost"), expected);

        // Certificates of clients are checked likewise, without names.
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).unwrap();
        roots.add(expired.der().clone()).unwrap();
        let clients = ClientAuthorities::new(roots, verifier.provider.clone()).unwrap();
        let accepts = |certificate: &rcgen::Certificate| {
            (clients.verify_client_cert(certificate.der(), &[], UnixTime::now())).is_ok()
        };
        assert_eq!(
            [&trusted, &other, &expired].map(accepts),
            [true, false, false]
        );
    }

    /// Only `--first-use` remembers the certificate of a new server, and only of the last server.
    #[test]
    fn first_use_remembers_the_last_server() {
        let verifier = |trust: &Trust| Verifier::new(trust, TlsArgs::default().provider()).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der();
        let seen = Fingerprint::of(certificate);
        let meets = |verifier: &Verifier| {
            let name = ServerName::try_from("localhost").unwrap();
            verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now())
        };
        let first = verifier(&Trust::FirstUse);
        first.expect(None);
        assert_eq!(first.met(), None);
        assert!(meets(&first).is_ok());
        assert_eq!((first.met(), first.refusal()), (Some(seen), None));
        first.expect(Some(seen));
        assert_eq!(first.met(), None, "the next server has shown nothing yet");
        assert!(meets(&first).is_ok());
        assert_eq!(first.met(), None, "the server was known");
        first.expect(Some(Fingerprint([1; 32])));
        assert!(meets(&first).is_err());
        assert!(first.met().is_none() && first.refusal().is_some());
        for trust in [Trust::Anybody, Trust::Pin(seen)] {
            let verifier = verifier(&trust);
            verifier.expect(Some(Fingerprint([1; 32])));
            assert!(meets(&verifier).is_ok());
            assert_eq!((verifier.met(), verifier.refusal()), (None, None));
        }
    }

    #[test]
    fn fingerprints_survive_a_round_trip() {
        let fingerprint = Fingerprint(std::array::from_fn(|index| index as u8 * 7));
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        let colons = fingerprint.to_string().to_uppercase();
        let digits = colons.strip_prefix("SHA256:").unwrap();
        let pairs: Vec<_> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect();
        assert_eq!(
            format!("sha256:{}", pairs.join(":")).parse(),
            Ok(fingerprint)
        );
        for wrong in ["", "sha256:", "sha256:00", "md5:00", "sha256:zz", digits] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
