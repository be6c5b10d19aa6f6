//! Authorities that answer with what is no answer, with refusals and with errors: what that means
//! to a step.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use myriad_pki::acme::clerk::{
    self, Account, BodyWrapper, BytesResponse, HttpClient, HttpError, OpenedAccount,
};
use myriad_pki::acme::{
    AcmeIssuer, ChallengeKind, Directory, KeyKind, Order, OrderKey, OrderStage, StepOutcome,
    StepTrouble, TaskStep,
};
use serde_json::{Value, json};

use super::accounts::{Accounts, account_name};
use super::http::judged;
use super::patience::{GivenUp, in_time};
use super::store::{AcmeStore, FileStore};
use super::testing;

const URL: &str = "https://ca.example";

/// The status and the body of the answer to a path.
type Answering = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// An authority that answers by a function of the path.
#[derive(Clone)]
struct Scripted {
    answer: Arc<Answering>,
    /// Fields of all of its answers.
    again: &'static str,
    location: String,
    /// Whether its answers are looked at before anybody acts on them, as those of others are.
    is_checked: bool,
}

impl Scripted {
    fn new(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Scripted {
        Scripted {
            answer: Arc::new(answer),
            again: "60",
            location: format!("{URL}/made"),
            is_checked: false,
        }
    }

    /// One that is well but for what this says.
    fn but_for(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Scripted {
        Scripted::new(move |path| match path {
            "/dir" => (200, directory_text()),
            "/nonce" => (200, String::new()),
            "/account" => (201, json!({"status": "valid"}).to_string()),
            path => answer(path),
        })
    }

    async fn open(self) -> Result<OpenedAccount, StepTrouble> {
        let directory = Directory {
            url: format!("{URL}/dir").into(),
            email: None,
            profile: None,
            binding: None,
        };
        let key = clerk::account_key()?;
        clerk::open(Box::new(self), &directory, &key).await
    }

    /// The account at one that is well enough to make it.
    async fn account(self) -> Account {
        self.open().await.unwrap().account
    }
}

impl HttpClient for Scripted {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, HttpError>> + Send>> {
        let (status, body) = (self.answer)(request.uri().path());
        let response = Response::builder().status(status);
        let response = response.header("replay-nonce", "n0");
        let response = response.header("location", &self.location);
        let response = response.header("retry-after", self.again);
        let response = response.body(Bytes::from(body)).unwrap();
        let response = match self.is_checked {
            true => judged(response),
            false => Ok(response),
        };
        Box::pin(async move {
            let response = response?;
            let response = response.map(|body| BodyWrapper::from(body.to_vec()));
            Ok(BytesResponse::from(response))
        })
    }
}

fn directory_text() -> String {
    let url = |path: &str| format!("{URL}/{path}");
    let directory = json!({
        "newNonce": url("nonce"),
        "newAccount": url("account"),
        "newOrder": url("new-order"),
        "renewalInfo": url("renewal"),
    });
    directory.to_string()
}

fn issuer() -> AcmeIssuer {
    AcmeIssuer {
        directories: Vec::new(),
        challenge: ChallengeKind::Http,
        dns: None,
        key: KeyKind::default(),
        is_tenants: false,
    }
}

async fn own_key() -> Result<OrderKey, String> {
    clerk::order_key(KeyKind::EcdsaP256)
}

/// The troubles of the steps of an order, and of a look at a window.
async fn troubles(authority: Scripted) -> Vec<StepTrouble> {
    let account = authority.account().await;
    let (order, issuer) = (testing::order("shop/web", OrderStage::Placing), issuer());
    let url = format!("{URL}/order/1");
    let placed = account.place(&order, &issuer, None).await;
    let accepted = account.accept(&url, &order.names, &issuer).await;
    let looked = account.look((&*url, 0), &order.names, own_key);
    let looked = looked.await;
    let window = account.window("aki.serial").await;
    let all = [placed, accepted, looked, window].into_iter();
    all.map(|it| it.expect_err("a trouble")).collect()
}

fn problem(kind: &str, detail: &str) -> Value {
    json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail})
}

#[tokio::test]
async fn an_answer_that_is_none_is_a_trouble_of_the_authority_and_no_refusal() {
    let deep = "[".repeat(200_000);
    let long = "x".repeat(500_000);
    let bad = ["", "{", "<html>", "[]", "null", &deep, &long];
    for bad in bad.map(str::to_owned) {
        let answer = bad.clone();
        let broken = Scripted::new(move |_| (200, answer.clone()));
        let trouble = broken.open().await.err();
        assert!(
            matches!(trouble, Some(StepTrouble::Unreachable(..))),
            "{trouble:?}"
        );
        // One that breaks later, and one that says in the same way that it has failed.
        for status in [200, 400, 500] {
            let answer = bad.clone();
            let broken = Scripted::but_for(move |_| (status, answer.clone()));
            for trouble in troubles(broken).await {
                let StepTrouble::Unreachable(words, _) = &trouble else {
                    panic!("{status} {bad:.20}: {trouble:?}")
                };
                assert!(words.len() <= 600);
            }
        }
    }
}

#[tokio::test]
async fn a_name_whose_caa_forbids_it_is_refused_in_the_words_of_the_authority() {
    let forbids = "CAA record for a.example prevents issuance";
    let at_once = Scripted::but_for(move |_| (403, problem("caa", forbids).to_string()));
    let account = at_once.account().await;
    let order = testing::order("shop/web", OrderStage::Placing);
    let placed = account.place(&order, &issuer(), None).await;
    let refused = StepTrouble::Refused(format!("{forbids} (caa)"));
    assert_eq!(placed.expect_err("it is refused"), refused);

    // Most find out while they look at the challenge.
    let later = Scripted::but_for(move |path| {
        let answer = match path {
            "/authz/1" => json!({
                "identifier": {"type": "dns", "value": "a.example"},
                "status": "invalid",
                "challenges": [{
                    "type": "http-01",
                    "url": format!("{URL}/challenge/1"),
                    "token": "t",
                    "status": "invalid",
                    "error": problem("caa", forbids),
                }],
            }),
            _ => json!({
                "status": "invalid",
                "authorizations": [format!("{URL}/authz/1")],
                "finalize": format!("{URL}/finalize/1"),
            }),
        };
        (200, answer.to_string())
    });
    let account = later.account().await;
    let url = format!("{URL}/order/1");
    let looked = account.look((&*url, 0), &order.names, own_key);
    let refused = StepTrouble::Refused(format!("a.example: {forbids} (caa)"));
    assert_eq!(looked.await.expect_err("it is refused"), refused);
}

#[tokio::test]
async fn what_an_authority_refuses_has_no_more_of_or_does_not_know_is_told_apart() {
    let order = testing::order("shop/web", OrderStage::Placing);
    for (status, kind, is_meant) in [
        (429, "rateLimited", "limited"),
        (403, "rateLimited", "limited"),
        (429, "other", "limited"),
        (400, "accountDoesNotExist", "no account"),
        (403, "accountDoesNotExist", "no account"),
        (404, "malformed", "lost"),
        (404, "other", "lost"),
        (500, "serverInternal", "unreachable"),
        (400, "serverInternal", "unreachable"),
        (403, "unauthorized", "refused"),
        (400, "rejectedIdentifier", "refused"),
    ] {
        let mut answer = problem(kind, "its words");
        answer["status"] = status.into();
        let authority = Scripted::but_for(move |_| (status, answer.to_string()));
        let placed = authority.account().await;
        let placed = placed.place(&order, &issuer(), None).await;
        let (found, words) = match placed.expect_err("a trouble") {
            StepTrouble::Limited(words, again) => {
                assert!(again >= 60_000, "{again}");
                ("limited", words)
            }
            StepTrouble::Lost(words) => ("lost", words),
            // An account that is bound to another may not be made again: nothing else forgets it.
            StepTrouble::NoAccount(words) => ("no account", words),
            StepTrouble::Unreachable(words, _) => ("unreachable", words),
            StepTrouble::Refused(words) => ("refused", words),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, is_meant, "{status} {kind}");
        assert!(words.contains("its words"), "{words}");
    }
}

/// An order that says which certificate it replaces.
fn replacing() -> Order {
    Order {
        replaces: Some("aki.serial".into()),
        ..testing::order("shop/web", OrderStage::Placing)
    }
}

/// An authority that fails in this way by so many new orders, and takes the next ones; and how many
/// it was asked for.
fn failing(status: u16, kind: &'static str, times: usize) -> (Scripted, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let authority = Scripted::but_for(move |path| match path {
        "/new-order" if count.fetch_add(1, Relaxed) < times => {
            let mut answer = problem(kind, "could not find an order");
            answer["status"] = status.into();
            (status, answer.to_string())
        }
        "/new-order" => (201, order_text("pending", 1)),
        _ => (200, authorization("a.example", "t").to_string()),
    });
    let checked = Scripted {
        is_checked: true,
        ..authority
    };
    (checked, asked)
}

#[tokio::test]
async fn an_authority_that_fails_by_the_certificate_to_be_replaced_has_it_as_a_new_one_at_once() {
    for (status, kind) in [(500, "serverInternal"), (404, "malformed")] {
        let (authority, asked) = failing(status, kind, 1);
        let account = authority.account().await;
        let placed = account.place_or_anew(&replacing(), &issuer(), None).await;
        let is_new = matches!(placed, Ok(StepOutcome::PlacedNew(..)));
        assert!(is_new && asked.load(Relaxed) == 2, "{status}: {placed:?}");
        // Where it may be no new one it is not known what is the matter.
        let (authority, asked) = failing(status, kind, 1);
        let account = authority.account().await;
        let placed = account.place(&replacing(), &issuer(), None).await;
        let Err(StepTrouble::Unreplaced(words)) = placed else {
            panic!("{status}: {placed:?}");
        };
        assert!(words.contains("could not find an order"), "{words}");
        assert_eq!(asked.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn an_authority_that_fails_by_new_orders_as_well_is_in_trouble_and_has_lost_no_certificate() {
    let (authority, asked) = failing(500, "serverInternal", usize::MAX);
    let account = authority.account().await;
    let placed = account.place_or_anew(&replacing(), &issuer(), None).await;
    let is_in_trouble = matches!(placed, Err(StepTrouble::Unreachable(..)));
    assert!(is_in_trouble && asked.load(Relaxed) == 2, "{placed:?}");
    // Its new orders are elsewhere by now.
    let (authority, _) = failing(404, "malformed", usize::MAX);
    let account = authority.account().await;
    let placed = account.place_or_anew(&replacing(), &issuer(), None).await;
    assert!(matches!(placed, Err(StepTrouble::Lost(_))), "{placed:?}");
    // One that is busy for a while says nothing of the order.
    let (authority, asked) = failing(503, "serverInternal", 1);
    let account = authority.account().await;
    let placed = account.place_or_anew(&replacing(), &issuer(), None).await;
    let is_busy = matches!(placed, Err(StepTrouble::Unreachable(..)));
    assert!(is_busy && asked.load(Relaxed) == 1, "{placed:?}");
}

#[tokio::test]
async fn an_authority_that_takes_an_order_without_what_it_replaces_is_told_apart() {
    let (authority, asked) = failing(500, "serverInternal", 0);
    let account = authority.account().await;
    let placed = account.place_or_anew(&replacing(), &issuer(), None).await;
    let is_meant = matches!(placed, Err(StepTrouble::Unheeded(_)));
    assert!(is_meant, "{placed:?}");
    assert_eq!(asked.load(Relaxed), 1, "another one is counted first");
}

#[tokio::test]
async fn an_account_is_forgotten_where_that_is_said_of_it_and_not_for_what_is_said_late() {
    let folder = tempfile::tempdir().unwrap();
    let store = AcmeStore::Files(FileStore::open(folder.path()).unwrap());
    let url = format!("{URL}/dir");
    let name = account_name(&url);
    let (accounts, opens) = (Accounts::default(), Cell::new(0));
    let open = || {
        opens.set(opens.get() + 1);
        async { Ok(Scripted::but_for(|_| (404, String::new())).account().await) }
    };
    let words = || "its words".to_owned();
    let (place, look) = (TaskStep::Place, TaskStep::Look);
    // Whether it is still open, and still kept.
    for (step, trouble, is_open, is_kept) in [
        (&look, StepTrouble::Lost(words()), true, true),
        (&look, StepTrouble::Unreachable(words(), 0), true, true),
        (&look, StepTrouble::Refused(words()), true, true),
        (&place, StepTrouble::Refused(words()), true, true),
        (&place, StepTrouble::Limited(words(), 0), true, true),
        // The directory is read anew, by the same account.
        (&place, StepTrouble::Lost(words()), false, true),
        (&place, StepTrouble::Unreplaced(words()), false, true),
        (&place, StepTrouble::Unreachable(words(), 0), false, true),
        (&look, StepTrouble::NoAccount(words()), false, false),
        (&place, StepTrouble::NoAccount(words()), false, false),
    ] {
        store.keep_account(&name, "{}").await.unwrap();
        let opened = accounts.open(&url, open).await.unwrap();
        let before = opens.get();
        let told = (step, &trouble);
        let judged = accounts.judge(&store, (&*url, &opened), told).await;
        judged.unwrap();
        let kept = store.account(&name).await.unwrap();
        assert_eq!(kept.is_some(), is_kept, "{step:?} {trouble:?}");
        accounts.open(&url, open).await.unwrap();
        let is_same = opens.get() == before;
        assert_eq!(is_same, is_open, "{step:?} {trouble:?}");

        // Steps that were under way with the one before say the same of it.
        store.keep_account(&name, "{}").await.unwrap();
        let before = opens.get();
        for _ in 0..28 * usize::from(!is_open) {
            let judged = accounts.judge(&store, (&*url, &opened), told).await;
            judged.unwrap();
        }
        accounts.open(&url, open).await.unwrap();
        assert_eq!(opens.get(), before, "{step:?} {trouble:?}");
        assert!(store.account(&name).await.unwrap().is_some());
    }
}

/// An order with this state and so many authorizations.
fn order_text(status: &str, authorizations: usize) -> String {
    let urls = (0..authorizations).map(|number| format!("{URL}/authz/{number}"));
    let order = json!({
        "status": status,
        "authorizations": urls.collect::<Vec<String>>(),
        "finalize": format!("{URL}/finalize/1"),
    });
    order.to_string()
}

/// A pending authorization of a name, with a token.
fn authorization(name: &str, token: &str) -> Value {
    let challenge = |kind: &str| {
        json!({
            "type": kind,
            "url": format!("{URL}/challenge/1"),
            "token": token,
            "status": "pending",
        })
    };
    json!({
        "identifier": {"type": "dns", "value": name},
        "status": "pending",
        "challenges": [challenge("tls-alpn-01"), challenge("http-01")],
    })
}

/// An authority with an order and one authorization at all of its URLs, and how many requests for
/// authorizations and challenges have come.
fn with_order(order: String, authorization: &Value) -> (Scripted, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, authorization) = (asked.clone(), authorization.to_string());
    let authority = Scripted::but_for(move |path| {
        if path == "/new-order" || path.starts_with("/order/") {
            return (200, order.clone());
        }
        count.fetch_add(1, Relaxed);
        (200, authorization.clone())
    });
    (authority, asked)
}

/// The refusals of an order that is placed, and of one that is there.
async fn refusals(authority: Scripted) -> [String; 2] {
    let account = authority.account().await;
    let (order, issuer) = (testing::order("shop/web", OrderStage::Placing), issuer());
    let placed = account.place(&order, &issuer, None).await;
    let url = format!("{URL}/order/1");
    let accepted = account.accept(&url, &order.names, &issuer).await;
    [placed, accepted].map(|outcome| match outcome {
        Err(StepTrouble::Refused(words)) => words,
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn an_order_that_fails_for_very_many_reasons_is_asked_for_few_and_told_of_in_few_words() {
    let mut failed = authorization(&"n".repeat(50_000), "t");
    let error = json!({"type": "x", "url": "", "status": "invalid", "error": {}});
    failed["challenges"] = vec![error; 5_000].into();
    let (authority, asked) = with_order(order_text("invalid", 5_000), &failed);
    for words in refusals(authority).await {
        assert!(words.len() <= 600, "{}", words.len());
        // The name is cut, and not what is said of it.
        let first = words.split(": ").next().unwrap();
        assert_eq!(first.len(), 253, "{words}");
        assert!(words.contains("without a word"), "{words}");
    }
    assert_eq!(asked.load(Relaxed), 2, "one for the one name, each time");

    // Of those that say nothing as few are asked for.
    failed["challenges"] = json!([]);
    let (authority, asked) = with_order(order_text("invalid", 5_000), &failed);
    let silent = ["it does not say why"; 2].map(str::to_owned);
    assert_eq!(refusals(authority).await, silent);
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test]
async fn an_order_of_more_proofs_than_names_is_refused_before_any_is_asked_for() {
    let own = authorization("a.example", "t");
    let (authority, asked) = with_order(order_text("pending", 2), &own);
    for words in refusals(authority).await {
        assert_eq!(words, "it wants 2 proofs for an order of 1 names");
    }
    assert_eq!(asked.load(Relaxed), 0);
}

#[tokio::test]
async fn nothing_is_answered_for_a_name_that_was_not_ordered_and_its_challenge_not_accepted() {
    let mut below = authorization("a.example", "t");
    below["wildcard"] = true.into();
    for foreign in [authorization("victim.example", "t"), below] {
        let (authority, asked) = with_order(order_text("pending", 1), &foreign);
        for words in refusals(authority).await {
            assert!(words.contains("that was not ordered"), "{words}");
        }
        assert_eq!(asked.load(Relaxed), 2, "the authorization, each time");
    }
}

#[tokio::test]
async fn a_token_or_the_url_of_an_order_that_is_none_or_too_long_is_not_kept() {
    let order = testing::order("shop/web", OrderStage::Placing);
    let most = "t".repeat(128);
    for (token, is_one) in [
        (&*most, true),
        ("a-_9", true),
        (&*format!("{most}t"), false),
        ("", false),
        ("a/b", false),
        ("a=", false),
    ] {
        let own = authorization("a.example", token);
        let (authority, _) = with_order(order_text("pending", 1), &own);
        let account = authority.account().await;
        let placed = account.place(&order, &issuer(), None).await;
        assert_eq!(placed.is_ok(), is_one, "{token}: {placed:?}");
    }
    let own = authorization("a.example", "t");
    let (authority, _) = with_order(order_text("pending", 1), &own);
    let authority = Scripted {
        location: format!("{URL}/{}", "x".repeat(2 << 10)),
        ..authority
    };
    let account = authority.account().await;
    let placed = account.place(&order, &issuer(), None).await;
    let trouble = placed.expect_err("it would be kept");
    let is_of_authority = matches!(trouble, StepTrouble::Unreachable(..));
    assert!(is_of_authority, "{trouble:?}");
}

#[tokio::test]
async fn an_answer_that_would_make_a_step_panic_is_found_and_one_that_does_ends_it() {
    let minute = Duration::from_secs(60);
    let no_url = Scripted::new(|_| {
        let nonce = format!("{URL}/nonce");
        (200, directory_text().replace(&nonce, "https://no uri/"))
    });
    let broken = in_time("hostile", minute, no_url.clone().open()).await;
    assert_eq!(broken.err(), Some(GivenUp::Broken));
    let found = Scripted {
        is_checked: true,
        ..no_url
    };
    let found = in_time("hostile", minute, found.open()).await;
    let Ok(Err(StepTrouble::Unreachable(words, _))) = found else {
        panic!("it is used")
    };
    assert!(words.contains("newNonce"), "{words}");

    let window = json!({"suggestedWindow": {
        "start": "2030-01-01T00:00:00Z",
        "end": "2030-01-02T00:00:00Z",
    }});
    let for_ever = Scripted {
        again: "18446744073709551615",
        ..Scripted::but_for(move |_| (200, window.to_string()))
    };
    let account = for_ever.clone().account().await;
    let broken = in_time("hostile", minute, account.window("aki.serial")).await;
    assert_eq!(broken.err(), Some(GivenUp::Broken));
    let found = Scripted {
        is_checked: true,
        ..for_ever
    };
    let account = found.account().await;
    let found = in_time("hostile", minute, account.window("aki.serial")).await;
    let Ok(Ok(StepOutcome::Window(Some(window)))) = found else {
        panic!("no window")
    };
    let day = 86_400_000;
    let wait = window.look_again;
    assert!((day - 60_000..=day).contains(&wait), "{wait}");
}
