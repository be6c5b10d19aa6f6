use super::*;

fn pair(byte: u8) -> Pair {
    Pair {
        leaf: vec![byte; 600],
        key: vec![byte; 138],
    }
}

fn domain(own: Option<Pair>) -> Domain {
    Domain {
        number: 7,
        host: "www.d00000007.custom.test".into(),
        endpoint: ([127, 0, 0, 1], 8_000).into(),
        own,
    }
}

#[test]
fn what_is_written_is_read() {
    let records = [
        Record::Issuer(vec![1, 2, 3]),
        Record::Shared(pair(4)),
        Record::Put(domain(Some(pair(5)))),
        Record::Put(domain(None)),
        Record::Remove(u64::MAX),
        Record::Synced,
        Record::Count,
    ];
    let mut pipe = Vec::new();
    for record in &records {
        record.write(&mut pipe).unwrap();
    }
    let mut input = pipe.as_slice();
    for record in &records {
        assert_eq!(Record::read(&mut input).unwrap().as_ref(), Some(record));
    }
    assert_eq!(Record::read(&mut input).unwrap(), None);
}

#[test]
fn a_part_that_is_too_long_is_refused_before_it_is_read() {
    let mut pipe = vec![b'I', 1];
    pipe.extend_from_slice(&u32::MAX.to_le_bytes());
    let error = Record::read(&mut pipe.as_slice()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_removal_names_all_that_was_put() {
    let objects = Objects {
        issuer: vec![1, 2, 3],
    };
    let put = objects.put(&domain(Some(pair(1)))).changes;
    let mut put: Vec<_> = put.iter().map(|change| change.key().clone()).collect();
    let gone = Objects::remove(7).changes;
    let mut gone: Vec<_> = gone.iter().map(|change| change.key().clone()).collect();
    put.sort();
    gone.sort();
    assert_eq!(put, gone);
}
