//! Examples for the help of commands.

pub(crate) const SERVE: &str = "\
Examples:
  Serve a directory with a self-signed certificate, and print its fingerprint:
    mpquic serve photos
  Serve browsers as well, with a certificate of an authority:
    mpquic serve site --listen [::]:443 --alt-svc --cert chain.pem --key key.pem
  Accept uploads of up to 100 MiB each:
    mpquic serve inbox --allow-put --max-put-size 100
  Answer `mpquic perf`:
    mpquic serve --perf";

pub(crate) const GET: &str = "\
Examples:
  Fetch a file over every usable interface:
    mpquic get https://example.org/big.iso
  Use two interfaces, and a third one only while the others do not work:
    mpquic get https://example.org/big.iso --local eth0 --local wlan0 --local wwan0 --backup wwan0
  Trust a server with a self-signed certificate at the first contact:
    mpquic get https://192.0.2.7:4433/big.iso --first-use
  Continue an interrupted download:
    mpquic get --continue https://example.org/big.iso
  Fetch a directory with everything below it:
    mpquic get -r https://example.org/photos/";

pub(crate) const PUT: &str = "\
Examples:
  Upload two files to a directory of a server:
    mpquic put https://192.0.2.7:4433/inbox/ a.jpg b.jpg --first-use
  Upload a directory with everything below it, at most at 20 Mbit/s:
    mpquic put -r --rate 20M https://192.0.2.7:4433/inbox/ photos";

pub(crate) const PERF: &str = "\
Examples:
  Measure latency, download and upload to a machine that runs `mpquic serve --perf`:
    mpquic perf 192.0.2.7 --first-use
  Measure requests per second, 50 at a time:
    mpquic perf 192.0.2.7 --first-use --test requests --parallel 50";

pub(crate) const PATHS: &str = "\
Examples:
  List the addresses from which paths can start:
    mpquic paths
  Check each second which of them reach a server:
    mpquic paths https://example.org --watch=1";
