//! Clients that show servers who they are.

use std::fs;
use std::path::Path;

use crate::{Server, assert_exit, directories, names, run, stderr};

/// Makes an authority, and a certificate of it for alice: `ca.pem`, `alice.pem` and `alice.key`.
pub(crate) fn issue(directory: &Path) {
    let at = |name: &str| directory.join(name);
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&authority).unwrap();
    fs::write(at("ca.pem"), certificate.pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["alice".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    fs::write(at("alice.pem"), own.pem()).unwrap();
    fs::write(at("alice.key"), key.serialize_pem()).unwrap();
}

/// `mpquic serve --client-ca` lets in who shows a certificate of that authority, to fetch and to
/// store.
#[test]
fn files_are_for_those_who_show_a_certificate() {
    let (served, target) = directories(b"for alice");
    let certificates = tempfile::tempdir().unwrap();
    issue(certificates.path());
    let at = |name: &str| certificates.path().join(name).to_str().unwrap().to_owned();
    let server = Server::start(
        served.path(),
        &["--allow-put", "--client-ca", &at("ca.pem")],
    );
    let copy = target.path().join("copy");
    let (url, copy) = (server.url("/file"), copy.to_str().unwrap());
    let get = [
        "get",
        "--pin",
        &server.pin,
        &url,
        "-o",
        copy,
        "--retry-time",
        "1",
    ];
    let put = [
        "put",
        "--pin",
        &server.pin,
        &server.url("/new"),
        copy,
        "--retry-time",
        "1",
    ];
    let stranger = tempfile::tempdir().unwrap();
    issue(stranger.path());
    let [other, other_key] = ["alice.pem", "alice.key"].map(|name| stranger.path().join(name));
    let [other, other_key] = [&other, &other_key].map(|path| path.to_str().unwrap());
    let unknown = ["--client-cert", other, "--client-key", other_key];
    // As with other credentials, the server has refused the client.
    for shown in [&[][..], &unknown] {
        let refused = run(&[&get[..], shown].concat());
        assert_exit(&refused, 7);
        let told = stderr(&refused);
        assert!(told.contains("(--client-cert)"), "{told}");
    }
    assert!(names(target.path()).is_empty());
    let (cert, key) = (at("alice.pem"), at("alice.key"));
    let own = ["--client-cert", &cert, "--client-key", &key];
    assert_exit(&run(&[&get[..], &own].concat()), 0);
    assert_eq!(fs::read(copy).unwrap(), b"for alice");
    assert_exit(&run(&put), 7);
    assert_exit(&run(&[&put[..], &own].concat()), 0);
    assert_eq!(fs::read(served.path().join("new")).unwrap(), b"for alice");
}
