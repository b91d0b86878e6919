"""What mpquic's logs (qlog, JSON-SEQ) say of a connection."""

import json

# Handshake data of a server that shows no certificate is shorter than this, in bytes.
RESUMED = 400


class Log:
    """The events of one connection."""

    def __init__(self, file):
        self.events = []
        self.began = ""
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                try:
                    record = json.loads(line.strip("\x1e\n"))
                except ValueError:
                    continue  # The last line of a process that was killed.
                if "name" in record:
                    self.events.append(record)
                else:
                    fields = record["trace"]["common_fields"]
                    self.began = fields["reference_time"]["wall_clock_time"]

    def named(self, name):
        return [event for event in self.events if event["name"] == "quic:" + name]

    def packets(self, direction, packet_type=None):
        """`direction` is `sent` or `received`."""
        packets = self.named("packet_" + direction)
        return [
            packet
            for packet in packets
            if packet_type in (None, packet["data"]["header"]["packet_type"])
        ]

    def frames(self, direction, frame_type, packet_type=None):
        """(event of the packet, frame) for each of them."""
        return [
            (packet, frame)
            for packet in self.packets(direction, packet_type)
            for frame in packet["data"]["frames"]
            if frame["frame_type"] == frame_type
        ]

    def parameters(self, initiator):
        for event in self.named("parameters_set"):
            if event["data"]["initiator"] == initiator:
                return event["data"]
        return {}

    def version(self):
        """Of the last long header received, in hexadecimal."""
        versions = [
            packet["data"]["header"]["version"]
            for packet in self.packets("received")
            if "version" in packet["data"]["header"]
        ]
        return versions[-1] if versions else None

    def retried(self):
        return any(
            "retry_source_connection_id" in self.parameters(side) for side in ("local", "remote")
        )

    def resumed(self):
        """The server showed no certificate."""
        ends = [
            frame["offset"] + frame["raw"]["payload_length"]
            for direction in ("sent", "received")
            for _, frame in self.frames(direction, "crypto", "handshake")
        ]
        return bool(ends) and max(ends) < RESUMED

    def key_updates(self):
        """Triggers of the key updates, in order."""
        return [
            event["data"]["trigger"]
            for event in self.named("key_updated")
            if event["data"].get("key_phase", 0) > 0
            and event["data"]["key_type"].startswith("client")
        ]

    def marked(self, direction):
        """ECT(0) marks counted in the acknowledgements of that direction."""
        acks = self.frames(direction, "ack") + self.frames(direction, "path_ack")
        return max((frame.get("ect0", 0) for _, frame in acks), default=0)

    def tuples(self, path=0):
        """The addresses a path had, in order, as (local, remote)."""
        return [
            tuple(
                address(event["data"][end]) for end in ("tuple_local", "tuple_remote")
            )
            for event in self.named("tuple_assigned")
            if event["data"]["path_id"] == path
        ]

    def paths(self, direction, at_least=1):
        """IDs of the paths with that many packets with STREAM frames."""
        counts = {}
        for packet, _ in self.frames(direction, "stream"):
            path = packet["data"]["header"]["path_id"]
            counts[path] = counts.get(path, 0) + 1
        return sorted(path for path, count in counts.items() if count >= at_least)

    def stream_packets(self, direction, path, since, until):
        """How many packets with STREAM frames a path had in that time."""
        return sum(
            1
            for packet, _ in self.frames(direction, "stream")
            if packet["data"]["header"]["path_id"] == path and since <= packet["time"] < until
        )

    def stream_times(self, direction, path=None):
        """When packets with STREAM frames went, of one path or of all, in ms."""
        return [
            packet["time"]
            for packet, _ in self.frames(direction, "stream")
            if path in (None, packet["data"]["header"]["path_id"])
        ]

    def stream_bytes(self, direction):
        """Bytes of STREAM frames, those sent again included."""
        return sum(frame["raw"]["payload_length"] for _, frame in self.frames(direction, "stream"))

    def streams(self):
        return {
            frame["stream_id"]
            for direction in ("sent", "received")
            for _, frame in self.frames(direction, "stream")
        }


def address(end):
    if "ip_v4" in end:
        return (end["ip_v4"], end["port_v4"])
    return (end["ip_v6"], end["port_v6"])
