//! Texts in which variables stand for parts of a request, named as nginx names them.

/// The most variables of one text.
pub const VARIABLES_MAX: usize = 32;

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable<'a> {
    /// `$scheme` and `$pass_access_scheme`: that of the client.
    Scheme,
    /// `$host`: the host in lower case, without its port.
    Host,
    /// `$http_host` and `$best_http_host`: the host as it was sent, with its port.
    Authority,
    /// `$request_uri`: path and query.
    Target,
    /// `$escaped_request_uri`: the same, escaped so that it may stand in a query.
    EscapedTarget,
    /// `$request_method`
    Method,
    /// `$remote_addr`: the address of the client.
    Address,
    /// `$remote_user`: the name of the user by `Authorization: Basic`.
    User,
    /// `$http_NAME`: a field of the head, whose dashes are underscores here.
    Field(&'a str),
    /// `$cookie_NAME`
    Cookie(&'a str),
    /// `$arg_NAME`: a parameter of the query.
    Parameter(&'a str),
}

/// A piece of a text with variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it is written.
    Text(&'a str),
    /// A part of the request in its place.
    Variable(Variable<'a>),
}

/// A dollar sign that no variable follows that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has a variable that is not known")]
pub struct UnknownVariable;

/// The pieces of a text.
pub struct Pieces<'a> {
    rest: &'a str,
}

/// Takes a text apart, without keeping anything.
pub fn pieces(text: &str) -> Pieces<'_> {
    Pieces { rest: text }
}

/// Whether all variables of a text are known, and no more than it may have.
pub fn are_known(text: &str) -> bool {
    let mut count = 0;
    pieces(text).all(|piece| {
        count += usize::from(matches!(piece, Ok(Piece::Variable(_))));
        piece.is_ok() && count <= VARIABLES_MAX
    })
}

/// Whether all variables of a text are known and of those that no client chooses the meaning of:
/// what a URL may have.
pub fn are_of_urls(text: &str) -> bool {
    are_known(text) && pieces(text).flatten().all(|piece| piece.is_of_urls())
}

impl Piece<'_> {
    fn is_of_urls(self) -> bool {
        match self {
            Piece::Text(_) => true,
            Piece::Variable(variable) => matches!(
                variable,
                Variable::Scheme
                    | Variable::Host
                    | Variable::Authority
                    | Variable::Target
                    | Variable::EscapedTarget
                    | Variable::Address
            ),
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<Piece<'a>, UnknownVariable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let text = match self.rest.split_once('$') {
            Some(("", behind)) => return Some(self.variable(behind)),
            Some((text, _)) => text,
            None => self.rest,
        };
        self.rest = self.rest.get(text.len()..).unwrap_or_default();
        Some(Ok(Piece::Text(text)))
    }
}

impl<'a> Pieces<'a> {
    /// The variable at the start of what follows a dollar sign. Behind one that is not known
    /// nothing more is read.
    fn variable(&mut self, behind: &'a str) -> Result<Piece<'a>, UnknownVariable> {
        let (name, rest) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}').unwrap_or(("", "")),
            None => {
                let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = behind.bytes().take_while(is_of_name).count();
                behind.split_at_checked(length).unwrap_or(("", ""))
            }
        };
        match Variable::of(name) {
            Some(variable) => {
                self.rest = rest;
                Ok(Piece::Variable(variable))
            }
            None => {
                self.rest = "";
                Err(UnknownVariable)
            }
        }
    }
}

impl<'a> Variable<'a> {
    fn of(name: &'a str) -> Option<Variable<'a>> {
        Some(match name {
            "scheme" | "pass_access_scheme" => Variable::Scheme,
            "host" => Variable::Host,
            "http_host" | "best_http_host" => Variable::Authority,
            "request_uri" => Variable::Target,
            "escaped_request_uri" => Variable::EscapedTarget,
            "request_method" => Variable::Method,
            "remote_addr" => Variable::Address,
            "remote_user" => Variable::User,
            _ => {
                let named = |start| {
                    name.strip_prefix(start)
                        .filter(|rest: &&str| !rest.is_empty())
                };
                named("http_")
                    .map(Variable::Field)
                    .or_else(|| named("cookie_").map(Variable::Cookie))
                    .or_else(|| named("arg_").map(Variable::Parameter))?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, UnknownVariable, VARIABLES_MAX, Variable, are_known, are_of_urls, pieces};

    #[test]
    fn a_text_is_taken_apart_at_its_variables() {
        let text = "https://$host:81/a?rd=${escaped_request_uri}&b=$http_x_a$cookie_s";
        let found: Result<Vec<Piece<'_>>, UnknownVariable> = pieces(text).collect();
        assert_eq!(
            found.unwrap(),
            [
                Piece::Text("https://"),
                Piece::Variable(Variable::Host),
                Piece::Text(":81/a?rd="),
                Piece::Variable(Variable::EscapedTarget),
                Piece::Text("&b="),
                Piece::Variable(Variable::Field("x_a")),
                Piece::Variable(Variable::Cookie("s")),
            ]
        );
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn what_is_not_known_is_told_and_ends_the_text() {
        for text in [
            "$", "a$", "$$host", "${host", "${}", "$Host", "$hosts", "$http_", "$cookie_", "$1",
            "${ho st}", "$é", "$uri", "$msec",
        ] {
            assert!(!are_known(text), "{text}");
            assert!(pieces(text).any(|piece| piece.is_err()), "{text}");
            assert!(pieces(text).count() <= 2, "{text}");
        }
        let many = |count: usize| "$host".repeat(count);
        assert!(are_known(&many(VARIABLES_MAX)));
        assert!(!are_known(&many(VARIABLES_MAX + 1)));
    }

    #[test]
    fn urls_have_variables_whose_form_is_known() {
        for text in [
            "/a",
            "$scheme://$http_host$request_uri",
            "?$remote_addr",
            "$best_http_host",
        ] {
            assert!(are_of_urls(text), "{text}");
        }
        for text in ["$http_x", "$cookie_a", "$arg_a", "$remote_user", "$x"] {
            assert!(!are_of_urls(text), "{text}");
        }
    }
}
