//! Series as text: OpenMetrics 1.0, and the older format of Prometheus (0.0.4), which has names of counters otherwise and no end.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit as OfRegistry},
};

use crate::commands::exporter::series::{Kind, Sample, Series, Unit};

/// A format that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// Which one a client would rather have, by its `Accept`. The older one, unless OpenMetrics is named.
    pub(super) fn wanted(accept: &str) -> Format {
        let weight = |wanted: &str| -> f64 {
            let weight_of = |entry: &str| {
                let mut parts = entry.split(';').map(str::trim);
                if parts.next()?.to_ascii_lowercase() != wanted {
                    return None;
                }
                let given = parts.find_map(|it| it.strip_prefix("q=")?.parse::<f64>().ok());
                Some(given.unwrap_or(1.0))
            };
            accept.split(',').filter_map(weight_of).fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if 0.0 < open && weight("text/plain") <= open {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All of `series`.
    pub(super) fn text(self, series: Vec<Series>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(AllOf(series)));
        let mut res = String::new();
        text::encode(&mut res, &registry)?;
        Ok(match self {
            Format::OpenMetrics => res,
            Format::Prometheus => older(&res),
        })
    }
}

/// In the older format a counter is called by its whole name, and units and the end are not written.
fn older(text: &str) -> String {
    let mut res = String::with_capacity(text.len());
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|it| it.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in text.lines() {
        let told = line.strip_prefix("# HELP ").map(|it| ("HELP", it));
        let told = told.or_else(|| line.strip_prefix("# TYPE ").map(|it| ("TYPE", it)));
        match told.and_then(|(what, rest)| Some((what, rest.split_once(' ')?))) {
            Some((what, (name, rest))) if counters.contains(&name) => {
                res += &format!("# {what} {name}_total {rest}\n");
            }
            None if line.starts_with("# UNIT ") || line == "# EOF" => {}
            _ => res += &format!("{line}\n"),
        }
    }
    res
}

#[derive(Debug)]
struct AllOf(Vec<Series>);

impl Collector for AllOf {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Series { metric, samples } in &self.0 {
            let unit = match metric.unit {
                Unit::None => None,
                Unit::Bytes => Some(OfRegistry::Bytes),
                Unit::Seconds => Some(OfRegistry::Seconds),
                Unit::Ratio => Some(OfRegistry::Other(metric.unit.text().to_owned())),
            };
            let kind = match metric.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut family =
                encoder.encode_descriptor(metric.stem, metric.help, unit.as_ref(), kind)?;
            for Sample { labels, value } in samples {
                let none: Option<&Exemplar<Vec<(String, String)>, f64>> = None;
                // Without labels a name stands alone.
                match metric.kind {
                    Kind::Gauge if labels.is_empty() => family.encode_gauge(value)?,
                    Kind::Gauge => family.encode_family(labels)?.encode_gauge(value)?,
                    Kind::Counter => family.encode_family(labels)?.encode_counter(value, none)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::commands::exporter::series::METRICS;

    /// One gauge with a label that has to be escaped, one counter, one number without labels.
    fn series() -> Vec<Series> {
        let of = |stem: &str, value: f64, labels: Vec<(&'static str, String)>| Series {
            metric: *METRICS.iter().find(|it| it.stem == stem).unwrap(),
            samples: vec![Sample { labels, value }],
        };
        let process = vec![("pid", "7".to_owned()), ("process", "a \"b\"\\c.py".to_owned())];
        vec![
            of("plimsoll_nvml_up", 1.0, vec![]),
            of("plimsoll_allocator_reserved", 85_899_345_920.0, process.clone()),
            of("plimsoll_allocator_retries", 3.0, process),
        ]
    }

    #[test]
    fn numbers_as_openmetrics() {
        expect![[r##"
            # HELP plimsoll_nvml_up 1 if the driver answers, 0 if not
            # TYPE plimsoll_nvml_up gauge
            plimsoll_nvml_up 1.0
            # HELP plimsoll_allocator_reserved_bytes Memory that PyTorch's allocator holds from the driver
            # TYPE plimsoll_allocator_reserved_bytes gauge
            # UNIT plimsoll_allocator_reserved_bytes bytes
            plimsoll_allocator_reserved_bytes{pid="7",process="a \"b\"\\c.py"} 85899345920.0
            # HELP plimsoll_allocator_retries How often the allocator freed its cache and retried
            # TYPE plimsoll_allocator_retries counter
            plimsoll_allocator_retries_total{pid="7",process="a \"b\"\\c.py"} 3.0
            # EOF
        "##]]
        .assert_eq(&Format::OpenMetrics.text(series()).unwrap());
    }

    #[test]
    fn numbers_as_prometheus_had_them_before() {
        expect![[r##"
            # HELP plimsoll_nvml_up 1 if the driver answers, 0 if not
            # TYPE plimsoll_nvml_up gauge
            plimsoll_nvml_up 1.0
            # HELP plimsoll_allocator_reserved_bytes Memory that PyTorch's allocator holds from the driver
            # TYPE plimsoll_allocator_reserved_bytes gauge
            plimsoll_allocator_reserved_bytes{pid="7",process="a \"b\"\\c.py"} 85899345920.0
            # HELP plimsoll_allocator_retries_total How often the allocator freed its cache and retried
            # TYPE plimsoll_allocator_retries_total counter
            plimsoll_allocator_retries_total{pid="7",process="a \"b\"\\c.py"} 3.0
        "##]].assert_eq(&Format::Prometheus.text(series()).unwrap());
    }

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus_2, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "text/plain;version=0.0.4;q=0.9, application/openmetrics-text; version=1.0.0; q=0.2",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("text/html,*/*;q=0.8", Format::Prometheus),
            ("", Format::Prometheus),
            (";;;,q=x", Format::Prometheus),
        ] {
            assert_eq!(Format::wanted(accept), expected, "{accept}");
        }
    }
}
