"""Cases about certificates, keys and the names in certificates."""

import datetime
import ipaddress
import shutil

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from place import SERVE, URL, case, expect, write

HOUR = datetime.timedelta(hours=1)
PEM = serialization.Encoding.PEM
PKCS8, TRADITIONAL = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
CURVE_PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
NAMES = ("localhost", "127.0.0.1")


def curve():
    return ec.generate_private_key(ec.SECP256R1())


def hash_for(key):
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def certificate(key, name, names=NAMES, issuer=None, authority=False, valid=(-HOUR, 24 * HOUR)):
    """A certificate: `issuer` has the certificate and the key of its issuer."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0].subject if issuer else subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now + valid[0]).not_valid_after(now + valid[1])
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([general(each) for each in names]), critical=False)
    signer = issuer[1] if issuer else key
    return builder.sign(signer, hash_for(signer))


def general(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def pem(made):
    return made.public_bytes(PEM)


def key_pem(key, form=PKCS8):
    return key.private_bytes(PEM, form, serialization.NoEncryption())


def serve(place, chain, key, *options):
    """A server with this certificate and this key, both as bytes of PEM."""
    write(place / "s/f", b"content")
    paths = write(place / "chain.pem", chain), write(place / "key.pem", key)
    return place.serve(place / "s", "--cert", paths[0], "--key", paths[1], *options)


def fetch(place, *options, url=f"{URL}/f", **more):
    """Exit code and output of `get` with no other trust than these options."""
    program = place.tool("get", "-q", "--server-addr", SERVE, *options, "-o", place / "out", url, **more)
    return program.wait(20), program.said()


@case("25a")
def a_certificate_that_is_its_own_authority(place):
    key = curve()
    own = pem(certificate(key, "localhost", authority=True))
    serve(place, own, key_pem(key))
    code, text = fetch(place, "--ca", write(place / "ca.pem", own))
    expect(code == 0, f"exit {code}: {text[-300:]}")
    other = curve()
    code, text = fetch(place, "--ca", write(place / "other.pem", pem(certificate(other, "localhost", authority=True))))
    expect(code == 6, f"another certificate of this name: exit {code}: {text[-300:]}")


@case("25b")
def a_broken_certificate_in_a_bundle(place):
    root_key, key = curve(), curve()
    root = certificate(root_key, "root", names=(), authority=True)
    leaf = certificate(key, "leaf", issuer=(root, root_key))
    serve(place, pem(leaf), key_pem(key))
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for name, bundle in (("first", broken + pem(root)), ("last", pem(root) + broken)):
        code, text = fetch(place, "--ca", write(place / "ca.pem", bundle))
        expect(code == 0, f"broken one {name}: exit {code}: {text[-300:]}")
    code, text = fetch(place, "--ca", write(place / "ca.pem", broken))
    expect(code not in (0, 101), f"only broken ones: exit {code}: {text[-300:]}")


@case("chains")
def a_chain_of_six(place):
    issuer, chain = None, []
    for number in range(5):
        key = curve()
        issuer = certificate(key, f"authority {number}", names=(), issuer=issuer, authority=True), key
        chain.insert(0, pem(issuer[0]))
    key = rsa.generate_private_key(65537, 4096)
    leaf = certificate(key, "leaf", issuer=issuer)
    trust = write(place / "ca.pem", chain.pop())
    for options in ((), ("--retry",)):
        server = serve(place, b"".join([pem(leaf), *chain]), key_pem(key), *options)
        code, text = fetch(place, "--ca", trust)
        expect(code == 0, f"{options}: exit {code}: {text[-300:]}")
        server.stop()


@case("PEM")
def files_of_certificates_and_keys(place):
    small, large = curve(), rsa.generate_private_key(65537, 2048)
    text = b"Certificate:\n    Data: some text\n"
    kinds = {
        "PKCS#8": (small, pem, key_pem), "PKCS#1": (large, pem, lambda key: key_pem(key, TRADITIONAL)),
        "SEC1 behind parameters": (small, pem, lambda key: CURVE_PARAMETERS + key_pem(key, TRADITIONAL)),
        "CRLF": (small, lambda made: pem(made).replace(b"\n", b"\r\n"), lambda key: key_pem(key).replace(b"\n", b"\r\n")),
        "text around": (small, lambda made: text + pem(made) + text, lambda key: text + key_pem(key)),
        "both in one file": (small, lambda made: pem(made) + key_pem(small), lambda key: key_pem(key) + pem(certificate(key, "localhost"))),
        "Ed25519": (ed25519.Ed25519PrivateKey.generate(), pem, key_pem), "P-384": (ec.generate_private_key(ec.SECP384R1()), pem, key_pem),
        "P-521": (ec.generate_private_key(ec.SECP521R1()), pem, key_pem), "no end of line": (small, lambda made: pem(made).rstrip(), lambda key: key_pem(key).rstrip()),
    }
    for name, (key, of_certificate, of_key) in kinds.items():
        made = certificate(key, "localhost")
        server = serve(place, of_certificate(made), of_key(key))
        code, said = fetch(place, "--ca", write(place / "ca.pem", of_certificate(made)))
        expect(code == 0, f"{name}: exit {code}: {said[-300:]}")
        server.stop()


@case("certificate names")
def names_in_certificates(place):
    key = curve()
    root = certificate(key, "root", names=(), authority=True)
    trust = write(place / "ca.pem", pem(root))

    def served(names, *urls, valid=(-HOUR, 24 * HOUR)):
        """The exit code for each of these hosts."""
        own = curve()
        server = serve(place, pem(certificate(own, "leaf", names=names, issuer=(root, key), valid=valid)), key_pem(own))
        codes = [fetch(place, "--ca", trust, url=f"https://{host}:4733/f") for host in urls]
        server.stop()
        return [code for code, _ in codes], [text[-200:] for _, text in codes]

    hosts = ("127.0.0.1", "[::1]", "a.site.example", "A.Site.Example", "a.site.example.", "b.a.site.example", "site.example")
    for names, wanted in ((("127.0.0.1",), (0, 6, 6, 6, 6, 6, 6)), (("::1",), (6, 0, 6, 6, 6, 6, 6)),
                          (("*.site.example",), (6, 6, 0, 0, 0, 6, 6)), (("A.SITE.EXAMPLE",), (6, 6, 0, 0, 0, 6, 6))):
        codes, texts = served(names, *hosts)
        expect(tuple(codes) == wanted, f"{names}: exit codes {codes}, wanted {wanted}: {texts}")
    for valid in ((-48 * HOUR, -24 * HOUR), (24 * HOUR, 48 * HOUR)):
        codes, texts = served(NAMES, "127.0.0.1", valid=valid)
        expect(codes == [6] and "clock" in texts[0], f"{valid}: exit {codes}: {texts}")


@case("certificate names")
def clocks_that_are_wrong(place):
    if not shutil.which("faketime"):
        return
    key = curve()
    own = pem(certificate(key, "localhost"))
    serve(place, own, key_pem(key))
    trust = write(place / "ca.pem", own)
    for clock in ("1970-01-02 00:00:00", "2040-01-01 00:00:00"):
        code, text = fetch(place, "--ca", trust, prefix=["faketime", clock])
        expect(code == 6 and "clock" in text, f"{clock}: exit {code}: {text[-300:]}")
