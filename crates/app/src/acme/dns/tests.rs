//! Records that are set, seen and removed at a server of DNS and a webhook that are made up, over
//! real sockets.

use myriad_pki::acme::{
    AcmeIssuer, ChallengeKind, DnsRecord, DnsSolver, DnsWebhook, KeyKind, Order, OrderStage,
    PlacedOrder, StepOutcome, StepTrouble,
};
use myriad_proxy::{BorderSettings, NameSettings, Names};

use self::server::{DnsServer, FORGED, Forgery, SECRET, WebhookServer, key};
use super::{Records, TextFinder, asker, names_at_gateway, names_by, place_of};
use crate::acme::http::Client;
use crate::acme::testing;

mod server;

const ACCOUNT: &str = "https://ca.example/acct/1";

/// Asks a server, at whose port the servers of all zones are.
fn records(server: &DnsServer) -> Records {
    records_within(server, BorderSettings::default())
}

fn records_within(server: &DnsServer, border: BorderSettings) -> Records {
    let settings = NameSettings {
        servers: vec![server.address],
        border,
        ..NameSettings::default()
    };
    let names = Names::new(settings, &myriad_base::metrics::Metrics::new());
    let config = myriad_proxy::upstream::secure::trusting().unwrap();
    let client = Client::new(config, names.clone());
    Records::new(
        names,
        vec![server.address],
        Some(server.address.port()),
        client,
    )
}

/// Finds texts at a server, at whose port the servers of all zones are.
fn finder(server: &DnsServer) -> TextFinder {
    let settings = NameSettings {
        servers: vec![server.address],
        ..NameSettings::default()
    };
    TextFinder::new(settings, Some(server.address.port()))
}

#[tokio::test]
async fn an_answer_that_does_not_repeat_the_question_is_asked_for_over_tcp() {
    let server = DnsServer::start(&["shop.example"]).await;
    server.change(|it| it.text("a.shop.example", "own"));
    let own: Box<[u8]> = b"own".as_slice().into();
    let texts = finder(&server).texts("a.shop.example").await.unwrap();
    assert_eq!(texts, std::slice::from_ref(&own));
    server.change(|it| assert_eq!(it.over_tcp, 0, "it repeats the question"));
    for forgery in [Forgery::None, Forgery::Twice, Forgery::OtherCase] {
        let finder = finder(&server);
        // The servers of the zone are known, so that the texts alone are forged.
        finder.texts("a.shop.example").await.unwrap();
        let before = server.change(|it| (it.forgery.replace(forgery), it.over_tcp).1);
        let texts = finder.texts("a.shop.example").await.unwrap();
        let forged: Box<[u8]> = FORGED.as_bytes().into();
        assert!(texts == std::slice::from_ref(&own) && !texts.contains(&forged));
        let count = server.change(|it| (it.forgery.take(), it.over_tcp - before).1);
        assert!(count > 0);
    }
}

#[tokio::test]
async fn what_is_confirmed_was_heard_over_tcp_alone() {
    let server = DnsServer::start(&["shop.example"]).await;
    server.change(|it| it.text("a.shop.example", "own"));
    let finder = finder(&server);
    let texts = finder.confirmed_texts("a.shop.example").await.unwrap();
    let own: Box<[u8]> = b"own".as_slice().into();
    assert_eq!(texts, std::slice::from_ref(&own));
    // Where the zone begins, its servers, their addresses, an alias, and the texts.
    server.change(|it| assert!((6..=8).contains(&it.over_tcp), "{}", it.over_tcp));
    server.change(|it| assert_eq!(it.over_tcp, it.all_asked()));
}

fn update(server: &DnsServer, zone: Option<&str>) -> DnsSolver {
    DnsSolver::Update {
        server: server.address.to_string().into(),
        zone: zone.map(Box::from),
        key: key(SECRET),
    }
}

fn valued(records: &[DnsRecord], values: &[&str]) -> Vec<DnsRecord> {
    let values = values.iter().map(|value| DnsRecord {
        value: Some((*value).into()),
        ..records[0].clone()
    });
    values.collect()
}

fn words<T: std::fmt::Debug>(result: Result<T, StepTrouble>) -> String {
    match result {
        Err(StepTrouble::Unproven(words, remedy)) => format!("{words} | {remedy}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn records_are_set_seen_and_removed_where_their_names_lead() {
    let server = DnsServer::start(&["shop.example", "auth.example"]).await;
    server.change(|it| it.alias("_acme-challenge.shop.example", "x.auth.example"));
    let (records, issuer) = (records(&server), issuer(update(&server, None)));
    let names = ["shop.example", "*.shop.example"];
    let found = records.prove((&issuer, "shop"), &names).await.unwrap();
    let [record] = &*found else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&*record.name, &*record.fqdn, &*record.zone),
        ("shop.example", "x.auth.example", "auth.example")
    );
    // It could have been changed, and was not.
    server.change(|it| assert!(it.updates == 1 && it.texts.is_empty()));

    // The name and the wildcard have a text each.
    let set = valued(&found, &["one", "two"]);
    assert_eq!(records.set((&issuer, "shop"), &set).await.unwrap(), None);
    server.change(|it| assert_eq!(it.texts_of("x.auth.example"), ["one", "two"]));
    server.change(|it| assert_eq!(it.updates, 2, "both at once"));
    // Once more changes nothing, and asks for no change.
    assert_eq!(records.set((&issuer, "shop"), &set).await.unwrap(), None);
    server.change(|it| assert_eq!(it.updates, 2));
    for _ in 0..2 {
        records.remove(Some((&issuer, "shop")), &set).await.unwrap();
        server.change(|it| assert!(it.texts.is_empty()));
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_kept_and_servers_of_zones_are() {
    let server = DnsServer::start(&[]).await;
    let (records, issuer) = (records(&server), issuer(update(&server, None)));
    let proven = records.prove((&issuer, "shop"), &["a.shop.example"]).await;
    assert!(words(proven).contains("no name above it"));
    server.change(|it| it.zones.push("shop.example".to_owned()));
    let names = ["a.shop.example", "b.shop.example", "c.shop.example"];
    let found = records.prove((&issuer, "shop"), &names).await.unwrap();
    assert_eq!(found.len(), 3);
    server.change(|it| assert_eq!(it.asked("NS"), 1, "the servers of one zone"));
    // Whoever leads elsewhere is followed at once.
    server.change(|it| it.alias("_acme-challenge.a.shop.example", "other.shop.example"));
    let found = records.prove((&issuer, "shop"), &names).await.unwrap();
    assert_eq!(&*found[0].fqdn, "other.shop.example");
}

#[tokio::test]
async fn servers_of_zones_are_asked_only_where_endpoints_may_be() {
    let server = DnsServer::start(&["shop.example"]).await;
    let mut border = BorderSettings::default();
    border.endpoints.denied.push("127.0.0.0/8".parse().unwrap());
    let (records, issuer) = (
        records_within(&server, border),
        issuer(update(&server, None)),
    );
    let proven = records.prove((&issuer, "shop"), &["shop.example"]).await;
    assert!(words(proven).contains("none of its servers has an address"));
    server.change(|it| assert_eq!(it.asked("CNAME"), 0));
}

#[tokio::test]
async fn names_that_lead_in_a_circle_or_out_of_the_zone_are_told_of() {
    let server = DnsServer::start(&["shop.example", "other.example"]).await;
    server.change(|it| {
        it.alias("_acme-challenge.a.shop.example", "b.shop.example");
        it.alias("b.shop.example", "_acme-challenge.a.shop.example");
        it.alias("_acme-challenge.c.shop.example", "c.other.example");
    });
    let zone = Some("shop.example.");
    let (records, issuer) = (records(&server), issuer(update(&server, zone)));
    let circle = records.prove((&issuer, "shop"), &["a.shop.example"]).await;
    assert!(words(circle).contains("through more than 8 names"));
    // It is asked a few times, and no more.
    server.change(|it| assert!(it.asked("CNAME") <= 9, "{}", it.asked("CNAME")));
    let outside = records.prove((&issuer, "shop"), &["c.shop.example"]).await;
    let outside = words(outside);
    assert!(outside.contains("c.other.example, which is not in the zone shop.example"));
    let inside = records.prove((&issuer, "shop"), &["d.shop.example"]).await;
    assert_eq!(&*inside.unwrap()[0].zone, "shop.example");
    let address = records.prove((&issuer, "shop"), &["192.0.2.7"]).await;
    assert!(words(address).contains("is an address"));
    let none = AcmeIssuer {
        dns: None,
        ..issuer.clone()
    };
    let none = records.prove((&none, "shop"), &["d.shop.example"]).await;
    assert!(words(none).contains("cannot set records"));
}

#[tokio::test]
async fn a_server_that_does_not_change_the_zone_is_told_of_in_its_words() {
    let with = |server: &str, secret: &str| {
        issuer(DnsSolver::Update {
            server: server.into(),
            zone: None,
            key: key(secret),
        })
    };
    let server = DnsServer::start(&["shop.example"]).await;
    let (records, issuer) = (records(&server), issuer(update(&server, None)));
    let prove = async || {
        let proven = records.prove((&issuer, "shop"), &["shop.example"]).await;
        words(proven)
    };
    server.change(|it| it.code = 5);
    let refused = prove().await;
    assert!(refused.contains("REFUSED") && refused.contains("zone shop.example"));
    server.change(|it| (it.code, it.is_signed) = (0, false));
    assert!(prove().await.contains("not signed"));
    server.change(|it| it.is_signed = true);
    let stranger = with(&server.address.to_string(), "another");
    let proven = records.prove((&stranger, "shop"), &["shop.example"]).await;
    assert!(words(proven).contains("NOTAUTH"));
    server.change(|it| assert_eq!(it.updates, 0));
    // Nobody listens there.
    let absent = with("127.0.0.1:1", SECRET);
    let proven = records.prove((&absent, "shop"), &["shop.example"]).await;
    assert!(words(proven).contains("does not answer"));
    // A tenant's issuer leads to public addresses alone.
    let tenants = AcmeIssuer {
        is_tenants: true,
        ..with(&server.address.to_string(), SECRET)
    };
    let proven = records.prove((&tenants, "shop"), &["shop.example"]).await;
    assert!(words(proven).contains("no address that may be asked"));
}

fn issuer(solver: DnsSolver) -> AcmeIssuer {
    AcmeIssuer {
        directories: Vec::new(),
        challenge: ChallengeKind::Http,
        dns: Some(solver),
        key: KeyKind::default(),
        is_tenants: false,
    }
}

/// An order of a name and of a wildcard, with the record of the latter.
fn order(records: Vec<DnsRecord>) -> Order {
    let placed = PlacedOrder {
        url: "u".into(),
        challenges: Vec::new(),
    };
    let mut order = testing::order("shop/web", OrderStage::Answering(placed));
    order.names = vec!["*.shop.example".into(), "www.shop.example".into()];
    order.records = records;
    order
}

#[tokio::test]
async fn an_order_waits_until_all_servers_show_its_records_but_not_for_ever() {
    let server = DnsServer::start(&["shop.example"]).await;
    let records = records(&server);
    let issuer = issuer(update(&server, None));
    let found = records.prove_order(&issuer, &order(Vec::new())).await;
    let found = found.unwrap();
    assert_eq!(&*found[0].fqdn, "_acme-challenge.shop.example");
    assert_eq!(found.len(), 1, "the other name is proven at a gateway");
    let order = order(valued(&found, &["v"]));
    server.change(|it| it.hides = true);
    let early = records.answer_order(&issuer, &order, 1_000).await.unwrap();
    assert!(matches!(early, StepOutcome::Pending(200)), "{early:?}");
    let late = records
        .answer_order(&issuer, &order, 300_000)
        .await
        .unwrap();
    assert!(matches!(late, StepOutcome::Pending(15_000)), "{late:?}");
    let never = records.answer_order(&issuer, &order, 600_000).await;
    assert!(words(never).contains("does not have _acme-challenge.shop.example yet"));
    server.change(|it| it.hides = false);
    let seen = records.answer_order(&issuer, &order, 1_000).await.unwrap();
    assert!(matches!(seen, StepOutcome::Answered), "{seen:?}");
    // One whose name has been led elsewhere meanwhile is begun anew.
    server.change(|it| it.alias("_acme-challenge.shop.example", "x.shop.example"));
    let moved = records.answer_order(&issuer, &order, 1_000).await;
    assert!(words(moved).contains("does not lead to _acme-challenge.shop.example any more"));
}

#[test]
fn names_are_divided_by_how_they_are_proven() {
    let solver = DnsSolver::Webhook(webhook("https://solver.example"));
    let order = order(Vec::new());
    let mut issuer = issuer(solver);
    assert_eq!(
        names_by(&issuer, &order, ChallengeKind::Dns),
        ["*.shop.example"]
    );
    assert_eq!(
        names_at_gateway(&issuer, &order),
        [Box::<str>::from("www.shop.example")]
    );
    issuer.challenge = ChallengeKind::Dns;
    assert_eq!(names_by(&issuer, &order, ChallengeKind::Dns).len(), 2);
    assert!(names_at_gateway(&issuer, &order).is_empty());
}

#[tokio::test]
async fn a_record_that_is_there_for_good_admits_the_account_that_it_names() {
    let server = DnsServer::start(&["shop.example"]).await;
    let records = records(&server);
    let names = ["*.shop.example", "shop.example"];
    let told = words(records.admit(ACCOUNT, &names).await);
    let wanted = format!("AUTHORITY; accounturi={ACCOUNT}; policy=wildcard");
    assert!(told.contains("_validation-persist.shop.example") && told.contains(&wanted));
    let own = format!("ca.example; accounturi={ACCOUNT}");
    server.change(|it| it.text("_validation-persist.shop.example", &own));
    assert!(records.admit(ACCOUNT, &["shop.example"]).await.is_ok());
    assert!(records.admit(ACCOUNT, &names).await.is_err());
    server.change(|it| {
        let text = format!("{own}; policy=wildcard");
        it.text("_validation-persist.shop.example", &text);
    });
    assert!(records.admit(ACCOUNT, &names).await.is_ok());
}

fn webhook(url: &str) -> DnsWebhook {
    DnsWebhook {
        url: Some(url.into()),
        group: "acme.example".into(),
        solver: "my-solver".into(),
        config: "".into(),
        namespace: "shop".into(),
        token_file: None,
    }
}

#[tokio::test]
async fn a_webhook_sets_and_removes_records() {
    let server = DnsServer::start(&["shop.example"]).await;
    let hook = WebhookServer::start(&server).await;
    let records = records(&server);
    let url = format!("http://{}", hook.address);
    let issuer = issuer(DnsSolver::Webhook(webhook(&url)));
    let found = records.prove((&issuer, "shop"), &["*.shop.example"]).await;
    let found = found.unwrap();
    assert!(hook.asked().is_empty(), "nothing is tried out");
    let set = valued(&found, &["one", "two"]);
    assert_eq!(records.set((&issuer, "shop"), &set).await.unwrap(), None);
    let place = "_acme-challenge.shop.example";
    server.change(|it| assert_eq!(it.texts_of(place), ["one", "two"]));
    records.remove(Some((&issuer, "shop")), &set).await.unwrap();
    server.change(|it| assert!(it.texts.is_empty()));
    let asked = hook.asked();
    let path = "POST /apis/acme.example/v1alpha1/my-solver HTTP/1.1";
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|it| it.starts_with(path)), "{asked:?}");
    hook.fail("no such zone");
    let refused = records.set((&issuer, "shop"), &set).await;
    assert!(words(refused).contains("no such zone"));
    let count = hook.asked().len();
    let tenants = AcmeIssuer {
        is_tenants: true,
        ..issuer
    };
    let refused = records.set((&tenants, "shop"), &set).await;
    assert!(words(refused).contains("may not be asked"));
    assert_eq!(hook.asked().len(), count);
}

#[tokio::test]
async fn a_namespace_with_all_the_places_that_it_may_have_holds_up_no_other() {
    let server = DnsServer::start(&["shop.example"]).await;
    let (records, issuer) = (records(&server), issuer(update(&server, None)));
    let solver = issuer.dns.as_ref().unwrap();
    let at = place_of((&issuer, "many"), solver);
    let mut held = Vec::new();
    for _ in 0..14 {
        held.push(records.places.come(&at, "many").await.expect("a place"));
    }
    let names = ["a.shop.example", "b.shop.example"];
    let proven = tokio::select! {
        _ = records.prove((&issuer, "many"), &names) => panic!("it has more than its places"),
        proven = records.prove((&issuer, "new"), &names) => proven,
    };
    assert_eq!(proven.unwrap().len(), 2);
    held.clear();
    let proven = records.prove((&issuer, "many"), &names).await;
    assert_eq!(proven.unwrap().len(), 2);
}

#[test]
fn the_places_of_issuers_of_tenants_are_their_own() {
    let of_all = issuer(DnsSolver::Webhook(webhook("https://solver.example")));
    let tenants = AcmeIssuer {
        is_tenants: true,
        ..issuer(DnsSolver::Webhook(webhook("https://solver.example")))
    };
    let at = |issuer: &AcmeIssuer, id: &str| {
        let mut order = order(Vec::new());
        order.id = id.into();
        place_of(asker(issuer, &order), issuer.dns.as_ref().unwrap())
    };
    assert_eq!(at(&of_all, "shop/a"), at(&of_all, "blog/a"));
    assert_eq!(at(&tenants, "shop/a"), at(&tenants, "shop/b"));
    assert_ne!(at(&tenants, "shop/a"), at(&tenants, "blog/a"));
    assert_ne!(at(&tenants, "shop/a"), at(&of_all, "shop/a"));
    // Webhooks of the cluster are told apart by what they are called.
    let of_group = |solver: &str| {
        let webhook = DnsWebhook {
            url: None,
            solver: solver.into(),
            ..webhook("")
        };
        let solver = DnsSolver::Webhook(webhook);
        place_of((&of_all, "shop"), &solver)
    };
    assert_ne!(of_group("one"), of_group("two"));
}
