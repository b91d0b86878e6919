"""Cases about files that are fetched, sent and served."""

import os
import signal
import time

from place import URL, case, expect, files_below, sha256, write


@case("1a")
def two_downloads_of_one_name(place):
    write(place / "s/a/f", b"A" * 30_000_000)
    write(place / "s/b/f", b"B" * 20_000_000)
    out = place.folder("o")
    place.serve(place / "s")
    place.get("--parallel", 2, "--rate", "200M", f"{URL}/a/f", f"{URL}/b/f", cwd=out)
    for file in out.iterdir():
        if file.suffix == ".json":
            continue
        expect(len(set(file.read_bytes())) <= 1, f"{file.name} is a mixture of two files")


@case("1a")
def two_processes_download_one_file(place):
    write(place / "s/f", b"A" * 30_000_000)
    out = place.folder("o")
    place.serve(place / "s")
    first = place.begin_get("-q", "--rate", "80M", f"{URL}/f", cwd=out)
    time.sleep(1)
    second = place.begin_get("-q", "--rate", "8M", f"{URL}/f", cwd=out)
    time.sleep(0.5)
    code = first.wait(60)
    second.process.send_signal(signal.SIGINT)
    second.wait(10)
    whole = (out / "f").exists() and sha256(out / "f") == sha256(place / "s/f")
    expect(code != 0 or whole, "the first process says success, and the file is not whole")
    expect(code == 0 or not (out / "f").exists() or whole, "a failed download left a file that looks whole")


@case("1b")
def a_part_file_of_somebody_else(place):
    write(place / "s/g", b"hi")
    out = place.folder("o")
    write(out / "g.part", b"precious")
    place.serve(place / "s")
    place.get("-q", f"{URL}/g", cwd=out)
    expect((out / "g.part").exists() and (out / "g.part").read_bytes() == b"precious", "g.part was overwritten")


@case("1b")
def a_part_file_that_is_a_link(place):
    write(place / "s/g", b"hi")
    out = place.folder("o")
    write(place / "target", b"precious")
    (out / "g.part").symlink_to(place / "target")
    place.serve(place / "s")
    place.get("-q", f"{URL}/g", cwd=out)
    expect((place / "target").read_bytes() == b"precious", "the target of the link was overwritten")


@case("5")
def files_older_than_1970_and_after_9999(place):
    for name, date in (("new", 1e9), ("old", -0.5), ("far", 253402300800 + 1e6)):
        write(place / f"s/{name}", name.encode())
        os.utime(place / f"s/{name}", (date, date))
    server = place.serve(place / "s")
    code, _, text = place.get("-q", "-r", f"{URL}/", "-o", place / "t")
    names = sorted(file.name for file in (place / "t").rglob("*") if file.is_file())
    expect(code == 0 and names == ["far", "new", "old"], f"exit {code}, {names}: {text[-200:]}")
    expect("panicked" not in server.said(), "the server panicked")


@case("6")
def fifo_in_a_tree(place):
    write(place / "t/a", b"a")
    os.mkfifo(place / "t/pipe")
    place.folder("s/x")
    place.serve(place / "s", "--allow-put")
    code, text = place.put("-r", "-q", f"{URL}/x/", f"{place / 't'}/.", seconds=10)
    expect(any((place / "s/x").rglob("a")), f"the regular file was not sent (exit {code}): {text[-200:]}")


@case("6")
def fifo_as_output(place):
    write(place / "s/a", b"a")
    os.mkfifo(place / "pipe")
    place.serve(place / "s")
    program = place.begin_get("-q", f"{URL}/a", "-o", place / "pipe")
    expect(program.wait(1) is None or program.process.returncode != 0, "there is no reader, and get says success")
    program.process.send_signal(signal.SIGINT)
    expect(program.wait(5) is not None, "get still runs 5 s after SIGINT")


@case("26")
def links_in_a_circle(place):
    write(place / "s/big", bytes(100_000))
    (place / "s/self").symlink_to(".")
    (place / "s/two").symlink_to(".")
    place.serve(place / "s")
    place.get("-r", "-q", f"{URL}/", "-o", place / "t", seconds=20)
    copies = sum(file.is_file() for file in (place / "t").rglob("*"))
    expect(copies == 1, f"{copies} copies of one file")


@case("11")
def names_that_are_not_utf8(place):
    source = os.fsencode(place.folder("s/e"))
    names = [b"good.txt", b"caf\xe9.txt", b"d\xe9/in.txt"]
    for name in names:
        path = source + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(name)
    place.folder("s/up")
    place.serve(place / "s", "--allow-put")
    code, _, text = place.get("-r", "-q", f"{URL}/e/", "-o", place / "t")
    fetched = sum(file.is_file() for file in (place / "t").rglob("*"))
    expect(fetched == 3 or code == 9, f"{fetched} of 3 files, exit {code}: {text[-200:]}")
    code, text = place.put("-q", "-r", f"{URL}/up/", f"{place / 's/e'}/.")
    stored = sum(file.is_file() for file in (place / "s/up").rglob("*"))
    expect(stored == 3 or (code == 9 and stored >= 1), f"{stored} of 3 stored, exit {code}: {text[-200:]}")


@case("15")
def long_names(place):
    for length in (241, 242, 250, 255):
        write(place / ("s/" + "n" * length), b"%d" % length)
    place.serve(place / "s")
    out = place.folder("o")
    for length in (241, 242, 250, 255):
        code, _, text = place.get("-q", f"{URL}/{'n' * length}", cwd=out)
        expect(code == 0, f"a name of {length} bytes: exit {code}: {text[-200:]}")


@case()
def times_and_modes_of_put(place):
    write(place / "t/secret", b"secret")
    os.chmod(place / "t/secret", 0o600)
    os.utime(place / "t/secret", (1577836800, 1577836800))
    place.folder("s/x")
    place.serve(place / "s", "--allow-put")
    code, text = place.put("-r", "-q", f"{URL}/x/", f"{place / 't'}/.")
    stored = next((place / "s/x").rglob("secret"), None)
    expect(stored, f"nothing stored, exit {code}: {text[-200:]}")
    status = stored.stat()
    expect(status.st_mode & 0o777 == 0o600, f"mode {status.st_mode & 0o777:o} instead of 600")
    expect(status.st_mtime == 1577836800, f"time {status.st_mtime} instead of 1577836800")


@case()
def targets_that_are_equal(place):
    for name in "ab":
        write(place / f"t/{name}/f", name.encode())
    place.folder("s")
    place.serve(place / "s", "--allow-put")
    for more, names in (((), ("a/f", "b/f")), (("-r",), ("a/.", "b/."))):
        code, text = place.put(*more, f"{URL}/", *(f"{place / 't'}/{name}" for name in names))
        told = all(f"/{name}/" in text for name in "ab")
        expect(code == 2 and told, f"{names}: exit {code}: {text[-200:]}")
        expect(not list((place / "s").iterdir()), f"{names}: something was sent")


@case()
def zeros_behind_an_upload_after_a_crash(place):
    write(place / "t/f", os.urandom(1_000_000) * 30)
    place.folder("s")
    server = place.serve(place / "s", "--allow-put")
    program = place.begin_put("--rate", "80M", "--retry-time", 40, f"{URL}/f", place / "t/f")
    time.sleep(1.5)
    server.process.kill()
    server.wait(5)
    for file in (place / "s").glob(".mpquic-put-*"):
        if not file.name.endswith(".note"):
            os.truncate(file, file.stat().st_size + (4 << 20))
    place.serve(place / "s", "--allow-put")
    code = program.wait(60)
    expect(code == 0, f"exit {code}: {program.said()[-300:]}")
    expect(sha256(place / "s/f") == sha256(place / "t/f"), "the stored file differs")


@case()
def files_left_out_of_a_tree(place):
    write(place / "s/e/plain", b"x")
    os.mkfifo(place / "s/e/pipe")
    (place / "s/e/out").symlink_to("../../elsewhere")
    place.folder("s/up")
    place.serve(place / "s", "--allow-put")
    code, _, text = place.get("-q", "-r", f"{URL}/e/", "-o", place / "t")
    expect(code == 9 and "`pipe`" in text and "`out`" in text, f"get: exit {code}: {text[-300:]}")
    code, text = place.put("-q", "-r", f"{URL}/up/", f"{place / 's/e'}/.")
    expect(code == 9 and "pipe is left out" in text and "out is left out" in text, f"put: exit {code}: {text[-300:]}")


@case()
def put_resumes_after_the_server_was_killed(place):
    write(place / "t/f", os.urandom(1_000_000) * 30)
    place.folder("s")
    server = place.serve(place / "s", "--allow-put")
    program = place.begin_put("--rate", "80M", "--retry-time", 40, f"{URL}/f", place / "t/f")
    time.sleep(1.5)
    server.process.kill()
    server.wait(5)
    place.serve(place / "s", "--allow-put")
    code = program.wait(60)
    expect(code == 0, f"exit {code}: {program.said()[-300:]}")
    expect(sha256(place / "s/f") == sha256(place / "t/f"), "the stored file differs")
    left = [file.name for file in (place / "s").iterdir() if file.name != "f"]
    expect(not left, f"left in the directory: {left}")


@case("12")
def served_root_is_switched(place):
    write(place / "one/f", b"one")
    write(place / "two/f", b"two")
    (place / "current").symlink_to("one")
    place.serve(place / "current")
    (place / "next").symlink_to("two")
    os.rename(place / "next", place / "current")
    code, _, text = place.get("-q", f"{URL}/f", "-o", place / "got")
    expect(code == 0 and (place / "got").read_bytes() == b"two", f"the old release is served: {text[-200:]}")
