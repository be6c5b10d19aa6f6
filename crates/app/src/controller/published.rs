//! The addresses under which the proxies' Service is reached, as they are published in statuses.

use std::sync::Arc;
use std::time::Duration;

use myriad_source::kubernetes::status::Address;
use myriad_source::kubernetes::{CallError, Client};
use tokio::sync::{mpsc, watch};

use crate::control::Event;

/// How often they are looked up.
const INTERVAL: Duration = Duration::from_secs(10);

/// The addresses of the Service that `--publish-service` names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Published {
    /// They have not been looked up.
    #[default]
    Unknown,
    /// There is no such Service, and none was seen before. What statuses show stays: this process
    /// may have begun after the Service went, and clients may still come by its addresses.
    Missing,
    /// They are these. They stay if the Service is deleted, since clients may still come by them.
    Found(Arc<[Address]>),
}

/// The Service, and who is told of its addresses.
pub(super) struct AddressKeeper {
    pub client: Client,
    /// The namespace and the name.
    pub service: (String, String),
    pub published: watch::Sender<Published>,
    pub inbox: mpsc::Sender<Event>,
}

impl Published {
    /// The addresses, once they have been found.
    pub(super) fn addresses(&self) -> Option<Arc<[Address]>> {
        match self {
            Published::Found(addresses) => Some(addresses.clone()),
            Published::Unknown | Published::Missing => None,
        }
    }

    /// Takes in what a look has found. Returns whether that is news.
    fn take(&mut self, found: &Result<Vec<Address>, CallError>) -> bool {
        let next = match (found, &*self) {
            (Ok(addresses), _) => Published::Found(addresses.as_slice().into()),
            (Err(CallError::NotFound), Published::Unknown) => Published::Missing,
            (Err(_), _) => return false,
        };
        let is_new = *self != next;
        *self = next;
        is_new
    }
}

impl AddressKeeper {
    /// Follows them for ever. Those that are new put [`Event::Restate`] into the inbox.
    pub(super) async fn keep(self) {
        let (namespace, name) = &self.service;
        let mut told: Option<String> = None;
        loop {
            let mut found = self.client.load_balancer(namespace, name).await;
            if let Ok(addresses) = &mut found {
                addresses.sort();
            }
            let is_new = self.published.send_if_modified(|it| it.take(&found));
            if is_new && self.inbox.send(Event::Restate).await.is_err() {
                return;
            }
            let problem = found.err().map(|error| problem(&error));
            if let Some(problem) = problem.as_ref().filter(|_| told != problem) {
                tracing::warn!(
                    namespace,
                    name,
                    "the Service of --publish-service {problem}"
                );
            }
            told = problem;
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// The text of what is wrong with the Service.
fn problem(error: &CallError) -> String {
    match error {
        CallError::NotFound => "does not exist, so that statuses show no address or the last one: \
                                create it, or name the Service of the proxies"
            .to_owned(),
        error => format!("cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_source::kubernetes::CallError;
    use myriad_source::kubernetes::status::Address;
    use serde_json::json;
    use tokio::sync::{mpsc, watch};

    use super::{AddressKeeper, Published};
    use crate::control::Event;
    use crate::fake_api;

    fn ip() -> Address {
        Address::Ip("192.0.2.1".parse().unwrap())
    }

    #[test]
    fn a_service_that_is_not_there_is_news_and_one_that_goes_is_not() {
        let mut published = Published::default();
        let missing = Err(CallError::NotFound);
        let lost = Err(CallError::Lost("reset".to_owned()));
        assert!(!published.take(&lost) && published.addresses().is_none());
        assert!(published.take(&missing) && !published.take(&missing));
        assert_eq!(published, Published::Missing);
        assert!(!published.take(&lost));
        assert!(published.take(&Ok(Vec::new())), "it has none yet");
        assert!(published.take(&Ok(vec![ip()])) && !published.take(&Ok(vec![ip()])));
        assert!(!published.take(&missing) && !published.take(&lost));
        assert_eq!(published.addresses(), Some(Arc::from([ip()])));
    }

    #[tokio::test]
    async fn whoever_states_is_told_of_what_is_found() {
        let client = fake_api::serve(|_, path, _| {
            let ingress = json!([{"ip": "192.0.2.1"}]);
            Some(match path.ends_with("/there") {
                true => (
                    200,
                    json!({"status": {"loadBalancer": {"ingress": ingress}}}),
                ),
                false => (404, json!({"kind": "Status", "code": 404})),
            })
        });
        let client = client.await;
        let wanted = [
            ("gone", Published::Missing),
            ("there", Published::Found([ip()].into())),
        ];
        for (name, expected) in wanted {
            let (inbox, mut events) = mpsc::channel(1);
            let (sender, published) = watch::channel(Published::default());
            let keeper = AddressKeeper {
                client: client.clone(),
                service: ("edge".to_owned(), name.to_owned()),
                published: sender,
                inbox,
            };
            let restated = tokio::select! {
                () = keeper.keep() => false,
                event = events.recv() => matches!(event, Some(Event::Restate)),
                () = tokio::time::sleep(Duration::from_secs(30)) => false,
            };
            assert!(restated, "{name}");
            assert_eq!(*published.borrow(), expected);
        }
    }
}
