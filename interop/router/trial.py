"""The rows of the trial, and figures that several rows have, for interop/router/run."""

from lab import rig

ROWS = []
# A new connection opens within one and a half round trips, and this many seconds.
OPENING = 0.05


class Row(rig.Row):
    """What was seen, what is wanted, and what is wrong."""

    def fail(self, why):
        self.check(False, why, None)


def row(name, faults, *, slow=False):
    """Registers a row, of which `faults` are the numbers in the list of faults that users found. A `slow` row takes many minutes."""

    def add(function):
        ROWS.append((name, faults, slow, function))
        return function

    return add


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def jain(values):
    """Jain's index of fairness: 1 for equal values, 1/n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def ms(seconds):
    return f"{1e3 * seconds:.0f} ms"


def rate(count, seconds):
    """Mbit/s."""
    return count * 8 / 1e6 / seconds


def opening(links):
    """Within how many seconds a new connection has to open: by the round trip of the slowest link."""
    return 1.5 * max(link.rtt for link in links) / 1e3 + OPENING


def check_opens(row, opens, links, what="connect", limit=None):
    """New connections: all open, and in time."""
    limit = limit or opening(links)
    times, failed = [one["connect"] for one in opens if not one["error"]], [one for one in opens if one["error"]]
    errors = ", ".join(sorted({one["error"] for one in failed}))
    if not times:
        row.check(False, f"{what}: none of {len(opens)} ({errors})", f"all within {ms(limit)}")
        return
    late = sum(time > limit for time in times)
    row.check(not failed and not late,
              f"{what} p50 {ms(quantile(times, 0.5))} max {ms(max(times))}, {late} late, {len(failed)} of {len(opens)} failed"
              + (f" ({errors})" if failed else ""), f"all within {ms(limit)}")


def check_names(row, names, limit=1.0):
    answered = [one for one in names if one is not None]
    lost = len(names) - len(answered)
    row.check(lost == 0 and max(answered) <= limit,
              f"DNS {len(answered)} of {len(names)}, p50 {ms(quantile(answered, 0.5))} max {ms(max(answered, default=0))}",
              f"all answered within {ms(limit)}")


def check_call(row, call, limit=0.0, silence=0.25):
    """A call: its lost payloads as a part of all, and its longest silence in seconds."""
    lost = call["lost"] / call["count"]
    row.check(lost <= limit and call["silence"] <= silence,
              f"call lost {call['lost']} of {call['count']} ({call['run']} in a row), p50 {ms(quantile(call['delays'], 0.5))} "
              f"p99 {ms(quantile(call['delays'], 0.99))}, silence {ms(call['silence'])}",
              f"lost {100 * limit:g} %, silence {ms(silence)}")


def check_talks(row, talks, longest, what="sessions"):
    dead = [talk for talk in talks if talk["error"]]
    errors = ", ".join(sorted({talk["error"] for talk in dead}))
    after = f" after {min(talk['after'] for talk in dead):.0f} s" if dead else ""
    waited = max(talk["longest"] for talk in talks)
    row.check(not dead and waited <= longest,
              f"{what}: {len(talks) - len(dead)} of {len(talks)} live" + (f" ({errors}{after})" if dead else "")
              + f", longest wait {waited:.1f} s", f"all live, wait {longest:g} s")
