//! Signatures against numbers that were worked out elsewhere, and against whoever changes messages.

use myriad_pki::acme::{TsigAlgorithm, TsigKey, TsigSecret};

use super::{SignatureError, sign, verify};

const NOW: u64 = 1_700_000_000;

/// An update of the zone `example` without any change: its header and its zone.
const ASKED: &[u8] = b"\x12\x34\x28\x00\x00\x01\x00\x00\x00\x00\x00\x00\
                       \x07example\x00\x00\x06\x00\x01";

fn key(secret: &str, algorithm: TsigAlgorithm) -> TsigKey {
    TsigKey {
        name: "K.example".into(),
        algorithm,
        secret: TsigSecret::new(secret.as_bytes().to_vec()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The answer to a message: the same, with the bit of answers.
fn answer() -> Vec<u8> {
    let mut answer = ASKED.to_vec();
    answer[2] = 0xa8;
    answer
}

#[test]
fn signatures_are_those_that_others_work_out() {
    for (algorithm, asked, answered) in [
        (
            TsigAlgorithm::Sha256,
            "375e904dad8ba97b65d90ea6336d6ec5e167c7e33218451b461b4af3e9b022f1",
            "048e68e5b000feb9d8ede673129820cfe584bd6d92555bcfb9ecf5e7dce82827",
        ),
        (
            TsigAlgorithm::Sha512,
            "a78b7c061d7d36bbe4a2bcb3a1b9d810e9a8e5189d28baa063d7f3766a0453a1\
             803acd2ea34282ec1b3899b373a89bc480053aa3444850bfb814b62d73c65aa0",
            "90e8c2c206066c6c337c1d22c98912f74aa037ef6ce1151b28f4b6c41e2288f5\
             4a44c430cb29434d1a73a2f7f4d8921f0538f63334cfeb1f37b4312b0b3038f8",
        ),
    ] {
        let key = key("secret", algorithm);
        let signed = sign(ASKED, &[], &key, NOW).unwrap();
        assert_eq!(hex(&signed.mac), asked);
        // One more record, which has the name of the key and is the last.
        assert_eq!(&signed.bytes[10..12], [0, 1]);
        let record = &signed.bytes[ASKED.len()..];
        assert!(record.starts_with(b"\x01k\x07example\x00\x00\xfa\x00\xff\x00\x00\x00\x00"));
        let reply = sign(&answer(), &signed.mac, &key, NOW).unwrap();
        assert_eq!(hex(&reply.mac), answered);
        assert_eq!(verify(&reply.bytes, &signed.mac, &key, NOW), Ok(()));
    }
}

#[test]
fn an_answer_that_is_changed_or_of_somebody_else_is_not_trusted() {
    let own = key("secret", TsigAlgorithm::Sha256);
    let asked = sign(ASKED, &[], &own, NOW).unwrap();
    let reply = sign(&answer(), &asked.mac, &own, NOW).unwrap();
    let trusts = |bytes: &[u8], now: u64| verify(bytes, &asked.mac, &own, now);
    assert_eq!(trusts(&reply.bytes, NOW + 299), Ok(()));
    for at in 0..reply.bytes.len() {
        let mut changed = reply.bytes.clone();
        changed[at] ^= 1;
        let is_trusted = trusts(&changed, NOW).is_ok();
        assert!(!is_trusted || is_known(at), "byte {at}");
        assert!(trusts(&reply.bytes[..at], NOW).is_err(), "byte {at}");
    }
    let other = key("another", TsigAlgorithm::Sha256);
    let forged = sign(&answer(), &asked.mac, &other, NOW).unwrap();
    assert_eq!(trusts(&forged.bytes, NOW), Err(SignatureError::Wrong));
    let unasked = sign(&answer(), &[], &own, NOW).unwrap();
    assert_eq!(trusts(&unasked.bytes, NOW), Err(SignatureError::Wrong));
    assert_eq!(trusts(&answer(), NOW), Err(SignatureError::Unsigned));
    for now in [NOW - 301, NOW + 301] {
        assert_eq!(trusts(&reply.bytes, now), Err(SignatureError::Time));
    }
}

/// Whether a byte is not signed as it stands there: the number of the message, which has its
/// original beside the signature, and of the record with that the name, the class, the time that it
/// lives and the name of the algorithm, all of which both ends know.
fn is_known(at: usize) -> bool {
    let name = ASKED.len()..ASKED.len() + 11;
    let record = name.end;
    let algorithm = record + 10..record + 10 + 13;
    let mut ranges = [0..2, name, record + 2..record + 8, algorithm].into_iter();
    ranges.any(|range| range.contains(&at))
}

#[test]
fn a_server_that_does_not_know_the_key_says_so_without_a_signature() {
    let own = key("secret", TsigAlgorithm::Sha256);
    let asked = sign(ASKED, &[], &own, NOW).unwrap();
    let mut answer = answer();
    answer[3] = 9;
    answer[11] = 1;
    answer.extend(b"\x01k\x07example\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x1d");
    answer.extend(b"\x0bhmac-sha256\x00\x00\x00\x65\x53\xf1\x00\x01\x2c\x00\x00\x12\x34");
    answer.extend(b"\x00\x11\x00\x00");
    let refused = verify(&answer, &asked.mac, &own, NOW).unwrap_err();
    assert!(refused.to_string().contains("BADKEY"), "{refused}");
}

#[test]
fn names_that_are_none_sign_nothing() {
    let long = "a".repeat(64);
    for name in ["", "a..b", ".", &long] {
        let key = TsigKey {
            name: name.into(),
            ..key("secret", TsigAlgorithm::Sha256)
        };
        assert!(sign(ASKED, &[], &key, NOW).is_none(), "{name}");
    }
    assert!(sign(b"\x12", &[], &key("s", TsigAlgorithm::Sha256), NOW).is_none());
}
