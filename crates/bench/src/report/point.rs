//! A point: one command of this program, and what came of it.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::programs::{ENVOY, PEERS, Programs};

/// A command of this program.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// The name among those of its experiment.
    pub name: String,
    /// The words behind the program's name.
    pub words: Vec<String>,
    /// The peers that take part.
    pub peers: Peers,
    /// Whether it is measured in a cluster.
    pub needs_cluster: bool,
}

/// The peers of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    /// Myriad has it for itself.
    None,
    /// The point is about Envoy: without it there is none.
    Envoy,
    /// Envoy stands beside Myriad, which `--alone` has it for itself.
    BesideEnvoy,
    /// Every peer that there is, by `--against`.
    Against,
}

/// The results of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The name of the point.
    pub name: String,
    /// The command that anybody can run.
    pub command: String,
    /// The digest of parameters and programs; a point with another one is another point.
    pub key: String,
    /// The programs that took part, with their versions.
    pub programs: BTreeMap<String, String>,
    /// When it ended.
    pub ended: String,
    /// How long it took.
    pub seconds: f64,
    /// The objects that the command printed.
    pub rows: Vec<Value>,
    /// The things that are missing in it.
    pub gaps: Vec<Gap>,
}

/// A thing that is missing, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gap {
    /// The missing thing.
    pub of: String,
    /// Why it is missing.
    pub reason: String,
    /// Whether a program or a machine for it is absent; otherwise something failed.
    pub is_absent: bool,
}

impl Point {
    /// The outcome of this point before anything ran, and the words that run; no words where a
    /// peer that it is about is absent.
    pub(super) fn prepare(&self, programs: &Programs) -> (Outcome, Option<Vec<String>>) {
        let mut words = self.words.clone();
        let wanted: &[&str] = match self.peers {
            Peers::None => &[],
            Peers::Envoy | Peers::BesideEnvoy => &[ENVOY],
            Peers::Against => &PEERS,
        };
        let mut took_part = programs.own().clone();
        let (mut gaps, mut there) = (Vec::new(), Vec::new());
        for &peer in wanted {
            match (programs.absence(peer), programs.version(peer)) {
                (None, Some(version)) => {
                    took_part.insert(peer.to_owned(), version.to_owned());
                    there.push(peer);
                }
                (reason, _) => gaps.push(Gap {
                    of: peer.to_owned(),
                    reason: reason.unwrap_or_default(),
                    is_absent: true,
                }),
            }
        }
        match self.peers {
            Peers::BesideEnvoy if there.is_empty() => words.push("--alone".to_owned()),
            Peers::Against if !there.is_empty() => {
                words.push(format!("--against={}", there.join(",")));
            }
            Peers::None | Peers::Envoy | Peers::BesideEnvoy | Peers::Against => (),
        }
        let is_possible = self.peers != Peers::Envoy || !there.is_empty();
        let outcome = Outcome {
            name: self.name.clone(),
            command: format!("myriad-bench {}", words.join(" ")),
            key: key(&words, &took_part),
            programs: took_part,
            ended: String::new(),
            seconds: 0.0,
            rows: Vec::new(),
            gaps,
        };
        (outcome, is_possible.then_some(words))
    }
}

impl Outcome {
    /// Whether all that could be measured was.
    pub(super) fn is_finished(&self) -> bool {
        !self.rows.is_empty() && self.gaps.iter().all(|gap| gap.is_absent)
    }

    /// Something failed.
    pub(super) fn fail(&mut self, reason: String) {
        self.gaps.push(Gap {
            of: self.name.clone(),
            reason,
            is_absent: false,
        });
    }

    /// Something that the point needs is absent.
    pub(super) fn lack(&mut self, reason: String) {
        self.gaps.push(Gap {
            of: self.name.clone(),
            reason,
            is_absent: true,
        });
    }
}

/// The digest of a command and the programs in it.
fn key(words: &[String], programs: &BTreeMap<String, String>) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    let versions = programs.iter().flat_map(|(name, version)| [name, version]);
    for text in words.iter().chain(versions) {
        hasher.write(text.as_bytes());
        hasher.write(&[0xff]);
    }
    format!("{:016x}", hasher.finish())
}
