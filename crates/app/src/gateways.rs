//! The file of `--gateways`: gateways beside the main one, each of whose proxies sees what is
//! meant for it and nothing else.
//!
//! It is a list in YAML, read once, at the start:
//!
//! ```yaml
//! - name: egress
//!   namespace: istio-system
//!   labels: {istio: egressgateway}
//!   serviceAccounts: [egress]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use myriad_base::file;
use myriad_translate::{MAIN, Role, View};
use serde::Deserialize;
use serde_json::Value;

/// The largest file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The most gateways.
const GATEWAYS_MAX: usize = 256;

/// The longest name, namespace or service account (RFC 1123).
const NAME_BYTES_MAX: usize = 253;

/// Namespace and name of a service account.
pub type Account = (String, String);

/// The content of the file.
#[derive(Clone, Debug, Default)]
pub struct Gateways {
    /// The views of the gateways.
    pub views: Vec<View>,
    /// The view that the proxies of each account see.
    pub accounts: BTreeMap<Account, Arc<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawGateway {
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    service_accounts: Vec<String>,
    #[serde(default)]
    ingress: bool,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Reads the file. `main` is the view that there is without it.
pub fn read(path: &Path, main: &View, problems: &mut Vec<String>) -> Gateways {
    match file::whole(path, BYTES_MAX) {
        Ok(text) => parse(&text, main, problems),
        Err(error) => {
            problems.push(format!("--gateways {}: {error}", path.display()));
            Gateways::default()
        }
    }
}

fn parse(text: &str, main: &View, problems: &mut Vec<String>) -> Gateways {
    let mut gateways = Gateways::default();
    if text.trim().is_empty() {
        return gateways;
    }
    let raw: Vec<RawGateway> = match serde_saphyr::from_str(text) {
        Ok(raw) => raw,
        Err(error) => {
            problems.push(format!("--gateways: {}", error.without_snippet()));
            return gateways;
        }
    };
    if raw.len() > GATEWAYS_MAX {
        problems.push(format!("--gateways has more than {GATEWAYS_MAX} entries"));
    }
    let mut known: Vec<View> = vec![main.clone()];
    for (at, raw) in raw.into_iter().take(GATEWAYS_MAX).enumerate() {
        let mut tell = |problem: String| problems.push(format!("--gateways: [{at}].{problem}"));
        for field in raw.rest.keys() {
            tell(format!("{field} is no field of a gateway"));
        }
        let name = word("name", raw.name, &mut tell);
        let namespace = word("namespace", raw.namespace, &mut tell);
        let view = View {
            name: name.as_str().into(),
            role: if raw.ingress {
                Role::Ingress
            } else {
                Role::Gateway
            },
            labels: raw.labels,
            namespace: namespace.as_str().into(),
        };
        if view.labels.is_empty() {
            tell("labels is empty, so that no selector could tell it from others".to_owned());
        }
        if name == MAIN || known.iter().any(|other| other.name == view.name) {
            tell(format!("name is {name:?}, which another gateway has"));
        } else if let Some(other) = known.iter().find(|other| other.is_like(&view)) {
            let other = &other.name;
            tell(format!(
                "labels and namespace are those of {other}; add its service accounts there"
            ));
        }
        if raw.service_accounts.is_empty() {
            tell("serviceAccounts is empty, so that no proxy could be of it".to_owned());
        }
        let mut own = BTreeSet::new();
        for (at, text) in raw.service_accounts.iter().enumerate() {
            let (of, account) = text.split_once('/').unwrap_or((&namespace, text));
            if !is_name(of) || !is_name(account) {
                tell(format!(
                    "serviceAccounts[{at}] is {text:?}, not NAME or NAMESPACE/NAME"
                ));
                continue;
            }
            let account = (of.to_owned(), account.to_owned());
            if !own.insert(account.clone()) || gateways.accounts.contains_key(&account) {
                tell(format!(
                    "serviceAccounts[{at}] is {text:?}, which is named twice"
                ));
            }
            gateways.accounts.insert(account, view.name.clone());
        }
        known.push(view.clone());
        gateways.views.push(view);
    }
    gateways
}

fn word(field: &str, text: Option<String>, tell: &mut impl FnMut(String)) -> String {
    let text = text.unwrap_or_default();
    if text.is_empty() {
        tell(format!("{field} is missing"));
    } else if !is_name(&text) {
        tell(format!("{field} is {text:?}, which is no name"));
    }
    text
}

fn is_name(text: &str) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use myriad_translate::{Role, Settings};

    use super::{Gateways, parse};

    fn read(text: &str) -> (Gateways, Vec<String>) {
        let mut problems = Vec::new();
        let gateways = parse(text, &Settings::default().main_view(), &mut problems);
        (gateways, problems)
    }

    #[test]
    fn gateways_are_read_with_who_is_of_them() {
        let (gateways, problems) = read(
            "- name: egress\n  namespace: istio-system\n  labels: {istio: egressgateway}\n  \
             serviceAccounts: [egress, other/egress]\n- name: tenant\n  namespace: tenant\n  \
             labels: {app: tenant-gw}\n  ingress: true\n  serviceAccounts: [gw]\n",
        );
        assert_eq!(problems, [""; 0]);
        let [egress, tenant] = &gateways.views[..] else {
            panic!("{:?}", gateways.views);
        };
        assert_eq!((&*egress.name, egress.role), ("egress", Role::Gateway));
        assert!(egress.has_label("istio", "egressgateway"));
        assert_eq!((&*tenant.namespace, tenant.role), ("tenant", Role::Ingress));
        let accounts = gateways.accounts.iter();
        let accounts: Vec<String> = accounts
            .map(|((namespace, name), view)| format!("{namespace}/{name}: {view}"))
            .collect();
        let wanted = [
            "istio-system/egress: egress",
            "other/egress: egress",
            "tenant/gw: tenant",
        ];
        assert_eq!(accounts, wanted);
        assert!(read("").1.is_empty() && read("[]").1.is_empty());
    }

    #[test]
    fn what_is_wrong_names_the_entry_and_the_field() {
        let sound = "- name: a\n  namespace: n\n  labels: {x: y}\n  serviceAccounts: [s]\n";
        assert_eq!(read(sound).1, [""; 0]);
        for (from, to, field) in [
            ("name: a", "name: A_b", "[0].name"),
            ("name: a\n  namespace", "namespace", "[0].name"),
            ("name: a", "name: gateway", "[0].name"),
            ("  namespace: n\n", "", "[0].namespace"),
            ("{x: y}", "{}", "[0].labels"),
            ("[s]", "[]", "[0].serviceAccounts"),
            ("[s]", "[n/s/t]", "[0].serviceAccounts[0]"),
            ("[s]", "[s, n/s]", "[0].serviceAccounts[1]"),
            ("labels", "label", "[0].label is no field"),
            ("labels: {x: y}", "labels: 7", "--gateways"),
        ] {
            let problems = read(&sound.replacen(from, to, 1)).1.join("; ");
            assert!(problems.contains(field), "{field} is not in: {problems}");
        }
        let twice = format!("{sound}{}", sound.replace("name: a", "name: b"));
        let problems = read(&twice).1.join("; ");
        assert!(problems.contains("[1].labels and namespace"), "{problems}");
        assert!(problems.contains("[1].serviceAccounts[0]"), "{problems}");
        let like_main = "- name: a\n  namespace: istio-system\n  ingress: true\n  labels: {istio: \
                         ingressgateway}\n  serviceAccounts: [s]\n";
        assert!(read(like_main).1[0].contains("those of gateway"));
    }
}
