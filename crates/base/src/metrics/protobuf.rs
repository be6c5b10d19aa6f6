//! Prometheus' protobuf format, the only one that carries native histograms.
//!
//! Names and numbers of fields are those of `io.prometheus.client` in client_model (Apache License
//! 2.0). Each message has its length before it.

use super::families::{FamilyKind, HistogramValue, MetricFamily, NativeReading, SeriesValue};
use super::native::{NATIVE_SCHEMA, NATIVE_ZERO_THRESHOLD};

/// All families, one after the other.
pub(super) fn encode(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = Message::default();
    for family in families {
        let message = encode_family(family);
        out.push_varint(message.0.len() as u64);
        out.0.extend(message.0);
    }
    out.0
}

fn encode_family(family: &MetricFamily) -> Message {
    let mut out = Message::default();
    out.text(1, &family.name);
    out.text(2, &family.help);
    let kind = match family.kind {
        FamilyKind::Counter => 0,
        FamilyKind::Gauge => 1,
        FamilyKind::Untyped => 3,
        FamilyKind::Histogram => 4,
    };
    out.number(3, kind);
    for series in &family.series {
        let mut metric = Message::default();
        for (name, value) in &series.labels {
            let mut pair = Message::default();
            pair.text(1, name);
            pair.text(2, value);
            metric.message(1, &pair);
        }
        match &series.value {
            SeriesValue::Number(number) => {
                let mut value = Message::default();
                value.double(1, *number);
                let field = match family.kind {
                    FamilyKind::Gauge => 2,
                    FamilyKind::Counter => 3,
                    FamilyKind::Untyped | FamilyKind::Histogram => 5,
                };
                metric.message(field, &value);
            }
            SeriesValue::Histogram(value) => metric.message(7, &encode_histogram(value)),
        }
        out.message(4, &metric);
    }
    out
}

fn encode_histogram(value: &HistogramValue) -> Message {
    let mut out = Message::default();
    out.number(1, value.count);
    out.double(2, value.sum);
    for (bound, upto) in &value.buckets {
        let mut bucket = Message::default();
        bucket.number(1, *upto);
        bucket.double(2, *bound);
        out.message(3, &bucket);
    }
    if let Some(native) = &value.native {
        encode_native(native, &mut out);
    }
    out
}

/// Spans of buckets that follow each other, and of each bucket how it differs from the one before.
fn encode_native(native: &NativeReading, out: &mut Message) {
    out.signed(5, i64::from(NATIVE_SCHEMA));
    out.double(6, NATIVE_ZERO_THRESHOLD);
    out.number(7, native.zero);
    let mut spans: Vec<(i32, u64)> = Vec::new();
    let mut end = 0;
    for (number, _) in &native.buckets {
        match spans.last_mut().filter(|_| *number == end) {
            Some((_, length)) => *length += 1,
            // The first says where it is, the others how far they are from the one before.
            None => spans.push((number - end, 1)),
        }
        end = number + 1;
    }
    for (offset, length) in spans {
        let mut span = Message::default();
        span.signed(1, i64::from(offset));
        span.number(2, length);
        out.message(12, &span);
    }
    let mut before = 0;
    for (_, count) in &native.buckets {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        out.signed(13, count - before);
        before = count;
    }
}

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

/// The kinds of encoding, by their numbers on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(((number & 0x7f) as u8) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn key(&mut self, field: u64, kind: u64) {
        self.push_varint((field << 3) | kind);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.key(field, VARINT);
        self.push_varint(number);
    }

    /// A number of which small negative ones are short.
    fn signed(&mut self, field: u64, number: i64) {
        self.number(field, ((number << 1) ^ (number >> 63)) as u64);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.key(field, FIXED64);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, BYTES);
        self.push_varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::Series;
    use super::{FamilyKind, HistogramValue, MetricFamily, NativeReading, SeriesValue, encode};

    #[test]
    fn a_counter_is_the_bytes_of_its_message() {
        let family = MetricFamily {
            name: "a".to_owned(),
            help: "b".to_owned(),
            kind: FamilyKind::Counter,
            series: vec![Series {
                labels: vec![("c".to_owned(), "d".to_owned())],
                value: SeriesValue::Number(1.0),
            }],
        };
        let metric = [
            &[0x0a, 6, 0x0a, 1, b'c', 0x12, 1, b'd', 0x1a, 9, 0x09][..],
            &1.0_f64.to_le_bytes(),
        ]
        .concat();
        let expected = [
            &[29, 0x0a, 1, b'a', 0x12, 1, b'b', 0x18, 0, 0x22, 19][..],
            &metric,
        ]
        .concat();
        assert_eq!(encode(&[family]), expected);
    }

    #[test]
    fn buckets_of_a_native_histogram_are_spans_and_differences() {
        let native = NativeReading {
            zero: 1,
            buckets: vec![(-3, 2), (-2, 5), (1, 4)],
        };
        let mut out = super::Message::default();
        super::encode_native(&native, &mut out);
        // Behind the schema, the width of zero and its count: two spans and three differences.
        let expected = [
            0x62, 4, 0x08, 5, 0x10, 2, // from -3 on two
            0x62, 4, 0x08, 4, 0x10, 1, // one two further
            0x68, 4, 0x68, 6, 0x68, 1, // 2, 3 more, 1 less
        ];
        assert!(out.0.ends_with(&expected), "{:x?}", out.0);
        assert_eq!(out.0.get(..2), Some(&[0x28, 6][..]));
        let value = HistogramValue {
            native: Some(native),
            ..HistogramValue::default()
        };
        assert!(super::encode_histogram(&value).0.ends_with(&expected));
    }
}
