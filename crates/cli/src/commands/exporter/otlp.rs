//! Numbers sent to a collector of OpenTelemetry, by HTTP, every few seconds.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
        metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use ureq::Agent;

use crate::{
    client,
    commands::exporter::series::{Kind, Series, Unit},
    machine::snapshot::Snapshot,
    output::say,
};

const PATH: &str = "/v1/metrics";
/// Who does not answer in this time is tried again the next time.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it asks whether it is over.
const TICK: Duration = Duration::from_millis(200);
/// What people already say to every program that sends: `authorization=Bearer%20abc,...`.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// A collector.
pub(super) struct Collector {
    url: String,
    agent: Agent,
    headers: Vec<(String, String)>,
}

impl Collector {
    /// That at `url`, such as `http://127.0.0.1:4318`.
    pub(super) fn at(url: &str) -> anyhow::Result<Collector> {
        let agent = client::of(url, PATIENCE)?;
        let url = url.trim_end_matches('/');
        let url = if url.ends_with(PATH) { url.to_owned() } else { format!("{url}{PATH}") };
        let headers = headers(&env::var(HEADERS).unwrap_or_default());
        Ok(Collector { url, agent, headers })
    }

    /// Sends every `interval` until `is_over`. What goes wrong is said once, and when it is over.
    pub(super) fn feed(
        &self,
        interval: Duration,
        numbers: &dyn Fn() -> Vec<u8>,
        is_over: &dyn Fn() -> bool,
    ) {
        let mut trouble: Option<String> = None;
        while !is_over() {
            let began = Instant::now();
            let found = self.send(&numbers()).err().map(|error| error.to_string());
            if found != trouble {
                let text = match &found {
                    Some(why) => format!(
                        "cannot send to {}: {why}; trying again every {} s",
                        self.url,
                        interval.as_secs_f64()
                    ),
                    None => format!("{} takes numbers again", self.url),
                };
                say(&text);
            }
            trouble = found;
            while began.elapsed() < interval && !is_over() {
                thread::sleep(TICK);
            }
        }
    }

    fn send(&self, body: &[u8]) -> Result<(), ureq::Error> {
        let mut request = self.agent.post(&self.url).content_type("application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.send(body).map(drop)
    }
}

/// Headers as the variable has them: `name=value,name=value`, the values as in an address.
fn headers(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|it| it.split_once('='));
    let value = |it: &str| {
        // As a query has it, but for the plus.
        let it = format!("v={}", it.trim().replace('+', "%2B"));
        form_urlencoded::parse(it.as_bytes()).map(|it| it.1.into_owned()).next().unwrap_or_default()
    };
    pairs.map(|it| (it.0.trim().to_owned(), value(it.1))).collect()
}

/// What is sent: names without their unit, which a collector puts behind them for Prometheus.
pub(super) fn message(snapshot: &Snapshot, series: Vec<Series>) -> Vec<u8> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds since 1970"
    )]
    let at = (snapshot.at * 1e9) as u64;
    let resource = [
        ("service.name", "plimsoll"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("host.name", &snapshot.host),
    ];
    let scope =
        InstrumentationScope { name: "plimsoll".to_owned(), ..InstrumentationScope::default() };
    let scope_metrics = ScopeMetrics {
        scope: Some(scope),
        metrics: series.into_iter().map(|it| metric(it, at)).collect(),
        ..ScopeMetrics::default()
    };
    let attributes =
        resource.into_iter().map(|(key, value)| attribute(key, value.to_owned())).collect();
    let of_host = ResourceMetrics {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_metrics: vec![scope_metrics],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![of_host] }.encode_to_vec()
}

fn metric(it: Series, at: u64) -> Metric {
    let point = |it: crate::commands::exporter::series::Sample| NumberDataPoint {
        attributes: it.labels.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        time_unix_nano: at,
        value: Some(number_data_point::Value::AsDouble(it.value)),
        ..NumberDataPoint::default()
    };
    let data_points = it.samples.into_iter().map(point).collect();
    let data = match it.metric.kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points }),
        Kind::Counter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
    };
    let unit = match it.metric.unit {
        Unit::None => "",
        Unit::Bytes => "By",
        Unit::Seconds => "s",
        Unit::Ratio => "1",
    };
    Metric {
        name: it.metric.stem.to_owned(),
        description: it.metric.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exporter::series::{METRICS, Sample};

    #[test]
    fn a_gauge_has_its_unit_and_a_counter_grows() {
        let of = |stem: &str| Series {
            metric: *METRICS.iter().find(|it| it.stem == stem).unwrap(),
            samples: vec![Sample { labels: vec![("gpu", "0".to_owned())], value: 3.0 }],
        };
        let snapshot = Snapshot { at: 1.5, host: "node17".to_owned(), ..Snapshot::default() };
        let series = vec![of("plimsoll_allocator_reserved"), of("plimsoll_allocator_retries")];
        let bytes = message(&snapshot, series);
        let read = ExportMetricsServiceRequest::decode(&bytes[..]).unwrap();
        let of_host = &read.resource_metrics[0];
        let host = attribute("host.name", "node17".to_owned());
        assert_eq!(of_host.resource.as_ref().unwrap().attributes[2], host);
        let [reserved, retries] = &of_host.scope_metrics[0].metrics[..] else { panic!("{read:?}") };
        assert_eq!(
            (reserved.name.as_str(), reserved.unit.as_str()),
            ("plimsoll_allocator_reserved", "By")
        );
        let point = NumberDataPoint {
            attributes: vec![attribute("gpu", "0".to_owned())],
            time_unix_nano: 1_500_000_000,
            value: Some(number_data_point::Value::AsDouble(3.0)),
            ..NumberDataPoint::default()
        };
        assert_eq!(reserved.data, Some(Data::Gauge(Gauge { data_points: vec![point.clone()] })));
        let Some(Data::Sum(sum)) = &retries.data else { panic!("{retries:?}") };
        assert!(sum.is_monotonic && sum.data_points == [point]);
    }

    #[test]
    fn headers_are_read_as_other_programs_read_them() {
        let read = headers("authorization=Bearer%20a+b, x-scope = 7,nothing");
        let expected = [("authorization", "Bearer a+b"), ("x-scope", "7")];
        assert_eq!(read, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
