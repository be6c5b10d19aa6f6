mod simulation;

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, IngressClass, Meta, Object, ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_base::hold::HoldLimits;

use super::{Bookmark, Core, Failure, Limits, ObjectHead, Request, Scope};

const HOLD: Duration = Duration::from_secs(60);

/// One step of the server's history; no content is a deletion.
#[derive(Clone, Debug)]
struct Step {
    version: u64,
    id: Arc<str>,
    content: Option<u32>,
}

fn class(id: &Arc<str>, content: u32) -> Object {
    let key = ObjectKey::from_id(ObjectKind::IngressClass, id.clone());
    Object::IngressClass(Arc::new(IngressClass {
        meta: Meta::new(key),
        controller: content.to_string().into(),
    }))
}

fn head(step: &Step) -> ObjectHead {
    ObjectHead {
        id: step.id.clone(),
        version: step.version,
        hash: u64::from(step.content.unwrap_or(0)),
    }
}

fn core(hold: Duration) -> Core {
    let scope = Scope {
        kind: ObjectKind::IngressClass,
        namespace: None,
        name: None,
        except: None,
        selector: "",
        is_optional: false,
        api_version: ObjectKind::IngressClass.api_version(),
    };
    let limits = Limits {
        removal_hold: hold,
        hold: HoldLimits::NONE,
        page_objects: 2,
    };
    Core::new(scope, limits, 1)
}

fn put(core: &mut Core, step: &Step) {
    let content = step.content.expect("lists show what is there");
    core.put(head(step), || Ok(class(&step.id, content)));
}

/// A core that has listed the given objects at version 20 and watches.
fn listed(hold: Duration, names: &[&str]) -> (Core, Instant) {
    let now = clock::now();
    let mut core = core(hold);
    assert_eq!(core.request(now), Request::Stream);
    for name in names {
        show(&mut core, name, 11);
    }
    end_list(&mut core, 20, now);
    assert_eq!(core.take().expect("news").changes.len(), names.len());
    (core, now)
}

fn show(core: &mut Core, name: &str, version: u64) {
    let id = name.into();
    put(
        core,
        &Step {
            version,
            id,
            content: Some(1),
        },
    );
}

fn end_list(core: &mut Core, version: u64, now: Instant) {
    core.bookmark(
        Bookmark {
            version,
            ends_list: true,
        },
        now,
    );
}

#[test]
fn who_wrote_an_object_is_asked_of_events_and_not_of_lists() {
    let (mut core, _) = listed(HOLD, &["/a"]);
    let writer = || Some("kubectl-edit".into());
    // The object that was put last is another one.
    core.attribute("/b", || panic!("nobody wrote it"));
    show(&mut core, "/b", 21);
    core.attribute("/b", writer);
    let news = core.take().expect("news");
    let key = ObjectKey::new(ObjectKind::IngressClass, "", "b");
    assert_eq!(news.writers, [(key, "kubectl-edit".into())]);
    core.fail(Failure::Gone);
    core.request(clock::now());
    show(&mut core, "/c", 22);
    core.attribute("/c", || panic!("lists are long"));
}

#[test]
fn an_object_that_was_written_otherwise_than_it_is_read_is_told_once() {
    let (mut core, now) = listed(HOLD, &["/a"]);
    let put = |core: &mut Core, version: u64, content: u32| {
        let step = Step {
            version,
            id: "/a".into(),
            content: Some(content),
        };
        core.put(head(&step), || Ok(class(&step.id, content)))
    };
    assert!(put(&mut core, 21, 1));
    assert!(!put(&mut core, 21, 1), "it comes again");
    assert!(!put(&mut core, 22, 2), "it has changed");
    // A list tells of those that were written meanwhile.
    core.fail(Failure::Gone);
    core.request(now);
    assert!(!put(&mut core, 22, 2));
    core.fail(Failure::Gone);
    core.request(now);
    assert!(put(&mut core, 23, 2));
}

#[test]
fn a_list_that_breaks_off_removes_nothing() {
    let (mut core, now) = listed(Duration::ZERO, &["/a", "/b"]);
    core.fail(Failure::Gone);
    assert_eq!(core.request(now), Request::Stream);
    show(&mut core, "/a", 11);
    core.fail(Failure::Lost("reset".to_owned()));
    assert!(core.take().is_none());
    core.request(now);
    show(&mut core, "/a", 11);
    end_list(&mut core, 30, now);
    let removed = core.take().expect("news").changes;
    assert!(
        matches!(&removed[..], [Change::Remove(key)] if key.name() == "b"),
        "{removed:?}"
    );
}

#[test]
fn a_kind_that_is_suddenly_empty_is_held_with_an_error() {
    let (mut core, mut now) = listed(HOLD, &["/a", "/b"]);
    core.fail(Failure::Gone);
    core.request(now);
    end_list(&mut core, 30, now);
    let output = core.take().expect("a report");
    assert!(output.changes.is_empty(), "{:?}", output.changes);
    let text = output.report.expect("a report").findings[0].to_string();
    assert!(text.contains("2 objects stay in effect"), "{text}");

    now += HOLD / 2;
    core.tick(now);
    assert!(core.take().is_none());
    // A list that breaks off after the hold began must not let the removals through.
    core.fail(Failure::Gone);
    core.request(now);
    core.fail(Failure::Lost("reset".to_owned()));
    now += HOLD;
    core.tick(now);
    assert!(core.take().is_none_or(|output| output.changes.is_empty()));
    core.request(now);
    end_list(&mut core, 40, now);
    assert_eq!(core.take().expect("removals").changes.len(), 2);
}

/// A core that holds what is much until it is confirmed, or for a time, and has listed so many.
fn listed_many(count: usize, time: Option<Duration>) -> (Core, Instant) {
    let now = clock::now();
    let scope = core(HOLD).scope;
    let limits = Limits {
        removal_hold: HOLD,
        hold: HoldLimits {
            time,
            ..HoldLimits::default()
        },
        page_objects: 2,
    };
    let mut core = Core::new(scope, limits, 1);
    list(&mut core, 0..count, 20, now);
    assert_eq!(core.take().expect("news").changes.len(), count);
    (core, now)
}

/// A list that shows these.
fn list(core: &mut Core, shown: std::ops::Range<usize>, version: u64, now: Instant) {
    core.request(now);
    for number in shown {
        show(core, &format!("/n{number}"), 11);
    }
    end_list(core, version, now);
}

#[test]
fn a_partial_loss_of_much_is_held_until_a_person_confirms_it() {
    let (mut core, now) = listed_many(200, None);
    core.fail(Failure::Gone);
    list(&mut core, 0..1, 30, now);
    let output = core.take().expect("a report");
    assert!(output.changes.is_empty(), "1 of 200 is left");
    let text = output.report.expect("a report").findings[0].to_string();
    assert!(text.contains("199 of 200 objects"), "{text}");
    assert!(text.contains("myriad confirm"), "{text}");
    core.tick(now + 1_000 * HOLD);
    assert!(core.take().is_none(), "no time is enough");
    core.delete(&head(&Step {
        version: 35,
        id: "/n7".into(),
        content: None,
    }));
    assert_eq!(core.take().expect("an event").changes.len(), 1);
    core.confirm();
    let output = core.take().expect("removals");
    assert_eq!(output.changes.len(), 198);
    assert!(!output.infers, "it is meant now");
    assert!(output.report.expect("a report").findings.is_empty());
    assert_eq!(core.loss(), None);
}

#[test]
fn a_loss_of_little_goes_at_once_and_is_said_to_be_inferred() {
    let (mut core, now) = listed_many(300, None);
    core.fail(Failure::Gone);
    list(&mut core, 0..240, 30, now);
    let output = core.take().expect("removals");
    assert_eq!((output.changes.len(), output.infers), (60, true));
    core.fail(Failure::Gone);
    list(&mut core, 0..179, 40, now);
    assert!(core.take().expect("a report").changes.is_empty());
}

#[test]
fn a_loss_goes_after_the_time_that_the_operator_has_set() {
    let (mut core, now) = listed_many(100, Some(HOLD / 2));
    core.fail(Failure::Gone);
    list(&mut core, 0..0, 30, now);
    assert!(core.take().expect("a report").changes.is_empty());
    core.tick(now + HOLD / 2);
    let output = core.take().expect("removals");
    assert_eq!((output.changes.len(), output.infers), (100, false));
}

#[test]
fn a_loss_that_was_confirmed_during_a_list_goes_at_its_end_unless_it_is_larger() {
    for (shown, removed) in [(20, 80), (10, 0)] {
        let (mut core, now) = listed_many(100, None);
        core.fail(Failure::Gone);
        list(&mut core, 0..20, 30, now);
        core.fail(Failure::Gone);
        core.request(now);
        core.confirm();
        list(&mut core, 0..shown, 40, now);
        assert_eq!(core.take().expect("news").changes.len(), removed);
    }
}

#[test]
fn objects_that_come_back_during_the_hold_stay() {
    let (mut core, now) = listed(HOLD, &["/a"]);
    core.fail(Failure::Gone);
    core.request(now);
    end_list(&mut core, 30, now);
    core.fail(Failure::Gone);
    core.request(now);
    show(&mut core, "/a", 11);
    end_list(&mut core, 31, now);
    core.tick(now + HOLD);
    let output = core.take().expect("the finding is withdrawn");
    assert!(output.changes.is_empty());
    assert!(output.report.expect("a report").findings.is_empty());
}

#[test]
fn an_event_about_a_held_object_counts_even_if_the_history_was_put_back() {
    let (mut core, now) = listed(HOLD, &["/a"]);
    core.fail(Failure::Gone);
    core.request(now);
    end_list(&mut core, 5, now);
    let step = Step {
        version: 6,
        id: "/a".into(),
        content: Some(2),
    };
    put(&mut core, &step);
    core.tick(now + HOLD);
    let changes = core.take().expect("news").changes;
    assert!(matches!(&changes[..], [Change::Put(_)]), "{changes:?}");
}

#[test]
fn deletions_that_were_seen_are_not_held() {
    let (mut core, _) = listed(HOLD, &["/a"]);
    let id = Arc::from("/a");
    core.delete(&head(&Step {
        version: 25,
        id,
        content: None,
    }));
    assert_eq!(core.take().expect("news").changes.len(), 1);
}

#[test]
fn one_object_that_cannot_be_read_is_a_finding_that_names_it() {
    let (mut core, _) = listed(HOLD, &["/a"]);
    let broken = Step {
        version: 25,
        id: "/a".into(),
        content: Some(2),
    };
    core.put(head(&broken), || Err("spec is a number".to_owned()));
    let output = core.take().expect("a report");
    assert!(
        output.changes.is_empty(),
        "its last good content stays in effect"
    );
    let text = output.report.expect("a report").findings[0].to_string();
    assert!(
        text.contains("IngressClass a") && text.contains("spec is a number"),
        "{text}"
    );
    let good = Step {
        version: 26,
        content: Some(3),
        ..broken
    };
    put(&mut core, &good);
    let output = core.take().expect("news");
    assert_eq!(output.changes.len(), 1);
    assert!(output.report.expect("a report").findings.is_empty());
}

#[test]
fn one_that_could_never_be_read_is_told_to_be_absent_once() {
    let (mut core, _) = listed(HOLD, &[]);
    let step = |version, content| Step {
        version,
        id: "/a".into(),
        content: Some(content),
    };
    let broken = |core: &mut Core, version: u64| {
        let step = step(version, u32::try_from(version).expect("a number"));
        core.put(head(&step), || Err("spec is a number".to_owned()));
        core.take().expect("a report").changes
    };
    let first = broken(&mut core, 25);
    assert!(matches!(&first[..], [Change::Remove(_)]), "{first:?}");
    assert!(broken(&mut core, 26).is_empty());
    put(&mut core, &step(27, 3));
    let changes = core.take().expect("news").changes;
    assert!(matches!(&changes[..], [Change::Put(_)]), "{changes:?}");
}

/// A Secret with this in its data, of any type.
fn secret(step: &Step, data: &str) -> Result<Object, String> {
    let json = format!(
        r#"{{"metadata":{{"name":"a","namespace":"n"}},"type":"Opaque","data":{{{data}}}}}"#
    );
    assert_eq!(&*step.id, "n/a");
    Object::from_json(ObjectKind::Secret, &json).map_err(|error| error.to_string())
}

#[test]
fn a_secret_of_which_nothing_is_read_is_not_handed_on() {
    let (mut core, _) = listed(HOLD, &[]);
    let users = r#""auth":"YTp7UExBSU59Yg==""#;
    for (version, data, puts, removes) in [
        (25, r#""token":"aHVzaA==""#, 0, 0),
        (26, users, 1, 0),
        (27, r#""token":"aHVzaA==""#, 0, 1),
        (28, users, 1, 0),
    ] {
        let step = Step {
            version,
            id: "n/a".into(),
            content: u32::try_from(version).ok(),
        };
        core.put(head(&step), || secret(&step, data));
        let changes = core.take().map(|it| it.changes).unwrap_or_default();
        let (put, removed): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| matches!(change, Change::Put(_)));
        assert_eq!((put.len(), removed.len()), (puts, removes), "{version}");
    }
}

#[test]
fn content_that_did_not_change_is_no_change() {
    let (mut core, _) = listed(HOLD, &["/a"]);
    show(&mut core, "/a", 25);
    assert!(core.take().is_none());
    assert_eq!(core.version, 25);
}

#[test]
fn a_bookmark_moves_the_version_of_a_quiet_kind() {
    let (mut core, now) = listed(HOLD, &["/a"]);
    let bookmark = |version| Bookmark {
        version,
        ends_list: false,
    };
    core.bookmark(bookmark(500), now);
    let output = core.take().expect("the version");
    assert!(output.changes.is_empty() && output.report.is_none());
    assert_eq!(output.version, 500);
    core.bookmark(bookmark(500), now);
    assert!(core.take().is_none(), "it has not moved");
}

#[test]
fn a_server_without_streaming_lists_is_asked_for_pages() {
    let now = clock::now();
    let mut core = core(HOLD);
    core.request(now);
    core.fail(Failure::Unsupported("sendInitialEvents".to_owned()));
    assert!(core.take().is_none(), "an older server is no finding");
    let page = |token: Option<&str>| Request::Page {
        limit: 2,
        token: token.map(Arc::from),
    };
    assert_eq!(core.request(now), page(None));
    core.end_page(20, Some("more".into()), now);
    assert_eq!(core.request(now), page(Some("more")));
    core.end_page(20, None, now);
    assert_eq!(core.request(now), Request::Watch(20));
}

#[test]
fn a_refusal_is_reported_and_an_optional_kind_does_not_close_the_gate() {
    let mut core = core(HOLD);
    core.scope.is_optional = true;
    core.request(clock::now());
    core.fail(Failure::Refused("403 forbidden".to_owned()));
    let output = core.take().expect("news");
    assert!(output.is_listed);
    let text = output.report.expect("a report").findings[0].to_string();
    assert!(text.contains("403 forbidden"), "{text}");
}

#[test]
fn who_is_not_known_is_told_nothing_even_of_an_optional_kind() {
    let mut core = core(HOLD);
    core.scope.is_optional = true;
    core.request(clock::now());
    core.fail(Failure::Unauthorized("401 who?".to_owned()));
    let output = core.take().expect("a report");
    assert!(!output.is_listed, "the gate stays closed");
    let text = output.report.expect("a report").findings[0].to_string();
    assert!(text.contains("nothing is served before"), "{text}");
    core.set_hidden(&Failure::Refused("403 forbidden".to_owned()));
    assert!(!core.take().expect("another report").is_listed);
}

#[test]
fn what_is_kept_of_an_object_is_small() {
    // A key is shared with the engine, so this and the table's spare room are all there is.
    assert!(size_of::<(Arc<str>, super::Known)>() <= 40);
}

#[test]
fn a_server_that_says_when_to_come_back_is_not_asked_before() {
    let (mut core, _) = listed(HOLD, &["a"]);
    let after = Duration::from_secs(30);
    let text = "503".to_owned();
    assert!(core.fail(Failure::Busy { after, text }) >= after);
    assert!(core.fail(Failure::Lost("reset".to_owned())) < after);
}
