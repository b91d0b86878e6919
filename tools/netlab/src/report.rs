//! What the links did, as JSON and as CSV.

use serde_json::{Value, json};

use crate::forward::LinkReport;
use crate::lab::Lab;
use crate::options::Options;
use crate::scenario::DIRS;

impl Lab {
    /// Stops the forwarding threads, writes the CSV file, and adds the links to the JSON line.
    pub(crate) fn report(&mut self, o: &Options, line: &mut Value) -> Result<(), String> {
        let ring = self.net.ring_drops();
        let udp = self.net.udp_overflows();
        let links = match self.forwarding.take() {
            None => vec![],
            Some(forwarding) => {
                let failed = forwarding.failed();
                let links = forwarding.stop();
                if failed {
                    return Err("a forwarding thread failed".into());
                }
                links
            }
        };
        if let Some(file) = &o.csv {
            std::fs::write(file, self.csv(&links)).map_err(|e| format!("{file}: {e}"))?;
        }
        line["links"] = links
            .iter()
            .map(|l| self.link(l, ring[l.path][l.dir], o.intervals))
            .collect();
        line["udp_rcvbuf_errors"] = json!({ "client": udp[0], "server": udp[1] });
        Ok(())
    }

    fn link(&self, link: &LinkReport, ring_drops: u64, intervals: bool) -> Value {
        let total = &link.stats.total;
        let ms = |ns: f64| (ns / 1e3).round() / 1e3;
        let mut value = json!({
            "path": link.path,
            "name": self.sc.paths[link.path].name,
            "dir": DIRS[link.dir],
            "in_packets": total.in_packets,
            "in_bytes": total.in_bytes,
            "delivered_packets": total.delivered_packets,
            "delivered_bytes": total.delivered_bytes,
            "dropped_queue": total.dropped_queue,
            "dropped_loss": total.dropped_loss,
            "dropped_blackhole": total.dropped_blackhole,
            "ce_marked": total.ce_marked,
            "duplicated": link.stats.duplicated,
            "reordered": link.stats.reordered,
            "left_inside": link.left,
            "queue_delay_mean_ms": ms(total.queue_delay_sum / total.departed.max(1) as f64),
            "queue_delay_max_ms": ms(total.queue_delay_max),
            "queue_bytes_max": link.stats.queue_bytes_max,
            "own": {
                "late_mean_us": link.late.sum / link.late.packets.max(1) / 1000,
                "late_max_us": link.late.max / 1000,
                "late_over_200us": link.late.over_200us,
                "late_over_1ms": link.late.over_1ms,
                "ring_drops": ring_drops,
                "write_errors": link.late.write_errors,
            },
        });
        if intervals {
            let delivered = link.stats.intervals.iter().map(|i| i.delivered_bytes);
            value["interval_delivered_bytes"] = delivered.collect();
        }
        value
    }

    fn csv(&self, links: &[LinkReport]) -> String {
        let mut text = String::from(
            "t_s,path,name,dir,in_packets,in_bytes,delivered_packets,delivered_bytes,dropped_queue,\
             dropped_loss,dropped_blackhole,ce_marked,queue_delay_mean_ms,queue_delay_max_ms\n",
        );
        let step = self.sc.interval_ns as f64 / 1e9;
        for link in links {
            for (k, i) in link.stats.intervals.iter().enumerate() {
                text += &format!(
                    "{:.3},{},{},{},{},{},{},{},{},{},{},{},{:.3},{:.3}\n",
                    k as f64 * step,
                    link.path,
                    self.sc.paths[link.path].name,
                    DIRS[link.dir],
                    i.in_packets,
                    i.in_bytes,
                    i.delivered_packets,
                    i.delivered_bytes,
                    i.dropped_queue,
                    i.dropped_loss,
                    i.dropped_blackhole,
                    i.ce_marked,
                    i.queue_delay_sum / i.departed.max(1) as f64 / 1e6,
                    i.queue_delay_max / 1e6,
                );
            }
        }
        text
    }
}
