use hickory_resolver::proto::op::{Message, ResponseCode};
use myriad_base::metrics::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{CutStream, HEAD_BYTES, MESSAGE_BYTES_MAX, RECORDS_MAX, cut};

/// An answer about a name of so many labels, with so many records in each section.
fn message(labels: usize, sections: [u16; 3]) -> Vec<u8> {
    let mut bytes = vec![7, 9, 0x81, 0x80, 0, 1];
    bytes.extend(sections.iter().flat_map(|count| count.to_be_bytes()));
    bytes.extend(b"\x01a".repeat(labels));
    bytes.extend([0, 0, 1, 0, 1]);
    for number in 0..sections.iter().sum::<u16>() {
        // The name of the question, an address for a minute.
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0]);
        bytes.extend(u16::to_be_bytes(number));
    }
    bytes
}

/// The message that is left of one.
fn cut_of(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = cut(&mut bytes);
    bytes.truncate(end);
    bytes
}

#[test]
fn a_message_has_no_more_records_than_are_used() {
    for (sections, left) in [
        ([4_000, 0, 0], [RECORDS_MAX, 0, 0]),
        ([0, 4_000, 4_000], [0, RECORDS_MAX, 0]),
        ([70, 5, 20], [70, 5, RECORDS_MAX - 75]),
        ([70, 5, 5], [70, 5, 5]),
        ([0, 0, 0], [0, 0, 0]),
    ] {
        let whole = message(100, sections);
        let cut = cut_of(whole.clone());
        let read = Message::from_vec(&cut).unwrap();
        let counts = [&read.answers, &read.authorities, &read.additionals].map(Vec::len);
        assert_eq!(counts, left, "{sections:?}");
        assert!(whole[HEAD_BYTES..].starts_with(&cut[HEAD_BYTES..]));
        assert_eq!(whole == cut, counts == sections.map(usize::from));
    }
}

#[test]
fn a_message_that_is_cut_off_ends_behind_its_last_whole_record() {
    let whole = message(1, [9, 0, 0]);
    let end = HEAD_BYTES + 3 + 4 + 2 * 16;
    for length in end..end + 16 {
        let read = Message::from_vec(&cut_of(whole[..length].to_vec())).unwrap();
        assert_eq!((read.queries.len(), read.answers.len()), (1, 2), "{length}");
    }
}

#[test]
fn of_what_is_no_message_there_is_the_head_of_a_failure() {
    let mut questions = message(1, [1, 0, 0]);
    questions[4..6].copy_from_slice(&u16::MAX.to_be_bytes());
    let mut label = message(1, [1, 0, 0]);
    label[HEAD_BYTES] = 0x80;
    let endless = message(2_000, [1, 0, 0])[..MESSAGE_BYTES_MAX - 500].to_vec();
    for bytes in [questions, label, endless] {
        let cut = cut_of(bytes);
        assert_eq!(cut.len(), HEAD_BYTES);
        let read = Message::from_vec(&cut).unwrap();
        assert_eq!(read.response_code, ResponseCode::ServFail);
        assert_eq!(cut[..2], [7, 9], "whose answer it is");
        assert_eq!((read.queries.len(), read.answers.len()), (0, 0));
    }
    assert_eq!(cut_of(vec![1; 11]), [1; 11]);
}

#[tokio::test]
async fn a_connection_hands_on_the_beginning_of_each_message() {
    let (long, short) = (message(100, [4_000, 0, 0]), message(3, [2, 0, 0]));
    let mut sent = Vec::new();
    for bytes in [&long, &short, &long] {
        sent.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        sent.extend(bytes);
    }
    // It comes in parts that end anywhere.
    let (mut server, client) = tokio::io::duplex(997);
    let cuts = Counter::default();
    let mut stream = CutStream::new(client, cuts.clone());
    let writing = async move {
        server.write_all(&sent).await.unwrap();
    };
    let reading = async {
        let mut lengths = Vec::new();
        for wanted in [&long, &short, &long] {
            let length = usize::from(stream.read_u16().await.unwrap());
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes[..2], wanted[..2]);
            assert!(stream.inbox.capacity() <= 4 * MESSAGE_BYTES_MAX);
            lengths.push((length, Message::from_vec(&bytes).unwrap().answers.len()));
        }
        // Its end is one.
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0);
        lengths
    };
    let ((), lengths) = tokio::join!(writing, reading);
    let cut = (HEAD_BYTES + 201 + 4 + 16 * RECORDS_MAX, RECORDS_MAX);
    assert!(cut.0 <= MESSAGE_BYTES_MAX);
    assert_eq!(lengths, [cut, (short.len(), 2), cut]);
    assert_eq!(cuts.get(), 2);
}
