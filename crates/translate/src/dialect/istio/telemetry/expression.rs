//! Conditions of access logs: the part of CEL that people write for them.
//!
//! Comparisons of attributes with constants, `has`, `in`, `contains`, `startsWith`, `endsWith`
//! and `matches`, joined by `&&`, `||`, `!` and parentheses. Everything else is refused by name,
//! so that no condition means something else than it says.

mod token;

use myriad_api::istio::scalar::parse_duration;
use myriad_model::{Attribute, Condition, ConditionStep, Literal, Relation, TextForm};

use token::{Token, tokens};

use crate::regex::{COSTLY, compiles, is_costly};

/// The longest expression in bytes.
const BYTES_MAX: usize = 4_096;

/// How deep parentheses and negations may stand in each other.
const DEPTH_MAX: usize = 16;

/// Reads a condition.
///
/// # Errors
/// The part of it that is not understood.
pub(super) fn parse(text: &str) -> Result<Condition, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("is longer than {BYTES_MAX} bytes"));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        steps: Vec::new(),
    };
    parser.alternatives()?;
    if let Some(token) = parser.peek() {
        return Err(format!("has {token} where it should end"));
    }
    let condition = Condition {
        steps: parser.steps.into(),
    };
    match condition.is_whole() {
        true => Ok(condition),
        false => Err(format!("has more than {} tests", Condition::STEPS_MAX)),
    }
}

/// The attribute of a name, with the header that it is of.
pub(super) fn attribute(path: &str, key: Option<&str>) -> Option<Attribute> {
    let header = |name: &str| Attribute::RequestHeader(name.into(), None);
    Some(match (path, key) {
        ("request.headers", Some(key)) => {
            Attribute::RequestHeader(key.to_ascii_lowercase().into(), None)
        }
        (_, Some(_)) => return None,
        ("request.path", _) => Attribute::Target,
        ("request.url_path", _) => Attribute::Path,
        ("request.query", _) => Attribute::Query,
        ("request.host", _) => Attribute::Authority,
        ("request.scheme", _) => Attribute::Scheme,
        ("request.method", _) => Attribute::Method,
        ("request.protocol", _) => Attribute::Protocol,
        ("request.id", _) => header("x-request-id"),
        ("request.useragent", _) => header("user-agent"),
        ("request.referer", _) => header("referer"),
        ("request.size", _) => Attribute::BytesReceived,
        ("request.duration", _) => Attribute::Duration,
        ("response.code", _) => Attribute::Status,
        ("response.size", _) => Attribute::BytesSent,
        ("source.address", _) => Attribute::ClientAddress,
        ("source.port", _) => Attribute::ClientPort,
        ("destination.port", _) => Attribute::ListenerPort,
        ("connection.mtls", _) => Attribute::IsMutual,
        ("connection.requested_server_name", _) => Attribute::ServerName,
        ("connection.tls_version", _) => Attribute::TlsVersion,
        ("connection.uri_san_peer_certificate", _) => Attribute::Principal,
        ("upstream.address", _) => Attribute::Endpoint,
        ("xds.cluster_name", _) => Attribute::Upstream,
        ("xds.route_name", _) => Attribute::Route,
        _ => return None,
    })
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    steps: Vec<ConditionStep>,
}

/// One side of a comparison.
enum Operand {
    Attribute(Attribute),
    Literal(Literal),
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Sign(known)) if *known == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(match self.peek() {
                Some(token) => format!("has {token} where {sign} should stand"),
                None => format!("ends where {sign} should stand"),
            }),
        }
    }

    fn alternatives(&mut self) -> Result<(), String> {
        self.conjunction()?;
        while self.takes("||") {
            self.conjunction()?;
            self.steps.push(ConditionStep::Or);
        }
        Ok(())
    }

    fn conjunction(&mut self) -> Result<(), String> {
        self.negation()?;
        while self.takes("&&") {
            self.negation()?;
            self.steps.push(ConditionStep::And);
        }
        Ok(())
    }

    fn negation(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("is nested more than {DEPTH_MAX} deep"));
        }
        if self.takes("!") {
            self.negation()?;
            self.steps.push(ConditionStep::Not);
        } else if self.takes("(") {
            self.alternatives()?;
            self.expect(")")?;
        } else {
            self.test()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn test(&mut self) -> Result<(), String> {
        if let (Some(Token::Name(name)), Some(Token::Sign("("))) =
            (self.peek().cloned(), self.tokens.get(self.at + 1))
        {
            return self.call(&name);
        }
        match self.operand()? {
            Operand::Attribute(attribute) => self.of_attribute(attribute),
            Operand::Literal(literal) => self.of_literal(literal),
        }
    }

    /// Reads a call, which begins with a name and a parenthesis: `has(x)` or `x.startsWith('y')`.
    fn call(&mut self, name: &str) -> Result<(), String> {
        self.at += 2;
        if name == "has" {
            let attribute = self.attribute()?;
            self.expect(")")?;
            self.steps.push(ConditionStep::Has(attribute));
            return Ok(());
        }
        let (path, method) = name.rsplit_once('.').unwrap_or(("", name));
        let attribute = attribute(path, None);
        let attribute = attribute.ok_or_else(|| format!("calls {name}, which is not known"))?;
        self.method(attribute, method)
    }

    /// The argument of a method whose parenthesis is open.
    fn method(&mut self, attribute: Attribute, method: &str) -> Result<(), String> {
        let form = match method {
            "contains" => TextForm::Contains,
            "startsWith" => TextForm::Start,
            "endsWith" => TextForm::End,
            "matches" => TextForm::Regex,
            _ => return Err(format!("calls {method}, which is not known")),
        };
        let Some(Token::Text(text)) = self.next() else {
            return Err(format!("calls {method} without a text"));
        };
        self.expect(")")?;
        if kind_of(&attribute) != Kind::Text {
            return Err(format!("calls {method} of what is no text"));
        }
        if text.len() > Condition::TEXT_BYTES_MAX {
            return Err("has too long a text".to_owned());
        }
        if form == TextForm::Regex && is_costly(&text) {
            return Err(format!("has {text:?}, which {COSTLY}"));
        }
        if form == TextForm::Regex && !compiles(&text) {
            return Err(format!("has {text:?}, which is no regex of RE2"));
        }
        let step = ConditionStep::Text(attribute, form, text.into());
        self.steps.push(step);
        Ok(())
    }

    fn of_attribute(&mut self, attribute: Attribute) -> Result<(), String> {
        if let (Some(Token::Method(method)), Some(Token::Sign("("))) =
            (self.peek().cloned(), self.tokens.get(self.at + 1))
        {
            self.at += 2;
            return self.method(attribute, &method);
        }
        if matches!(self.peek(), Some(Token::Name(name)) if name == "in") {
            self.at += 1;
            return self.one_of(&attribute);
        }
        let Some(relation) = self.relation() else {
            return match kind_of(&attribute) {
                Kind::Flag => self.compare(attribute, Relation::Equal, Literal::Flag(true)),
                _ => Err("has an attribute that is neither true nor false".to_owned()),
            };
        };
        match self.operand()? {
            Operand::Literal(literal) => self.compare(attribute, relation, literal),
            Operand::Attribute(_) => Err("compares two attributes".to_owned()),
        }
    }

    fn of_literal(&mut self, literal: Literal) -> Result<(), String> {
        if matches!(self.peek(), Some(Token::Name(name)) if name == "in") {
            self.at += 1;
            return self.header_there(&literal);
        }
        match (self.relation(), literal) {
            (None, Literal::Flag(flag)) => {
                self.steps.push(ConditionStep::Constant(flag));
                Ok(())
            }
            (None, _) => Err("has a value that is neither true nor false".to_owned()),
            (Some(relation), literal) => match self.operand()? {
                Operand::Attribute(attribute) => self.compare(attribute, turned(relation), literal),
                Operand::Literal(_) => Err("compares two constants".to_owned()),
            },
        }
    }

    /// `'x-a' in request.headers`.
    fn header_there(&mut self, literal: &Literal) -> Result<(), String> {
        let name = match self.next() {
            Some(Token::Name(name)) => name,
            _ => return Err("has in without headers".to_owned()),
        };
        let known = match literal {
            Literal::Text(key) => attribute(&name, Some(key)),
            _ => None,
        };
        let known = known.ok_or_else(|| format!("looks into {name}, which cannot be"))?;
        self.steps.push(ConditionStep::Has(known));
        Ok(())
    }

    /// `x in ['a', 'b']`.
    fn one_of(&mut self, attribute: &Attribute) -> Result<(), String> {
        self.expect("[")?;
        let mut count = 0_usize;
        while !self.takes("]") {
            if count > 0 {
                self.expect(",")?;
            }
            let Operand::Literal(literal) = self.operand()? else {
                return Err("compares two attributes".to_owned());
            };
            self.compare(attribute.clone(), Relation::Equal, literal)?;
            if count > 0 {
                self.steps.push(ConditionStep::Or);
            }
            count += 1;
        }
        if count == 0 {
            self.steps.push(ConditionStep::Constant(false));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        attribute: Attribute,
        relation: Relation,
        literal: Literal,
    ) -> Result<(), String> {
        let kind = match &literal {
            Literal::Text(text) if text.len() > Condition::TEXT_BYTES_MAX => {
                return Err("has too long a text".to_owned());
            }
            Literal::Text(_) => Kind::Text,
            Literal::Number(_) => Kind::Number,
            Literal::Flag(_) => Kind::Flag,
        };
        let is_ordered = !matches!(relation, Relation::Equal | Relation::Unequal);
        if kind != kind_of(&attribute) || (kind == Kind::Flag && is_ordered) {
            return Err("compares values of different types".to_owned());
        }
        let step = ConditionStep::Compare(attribute, relation, literal);
        self.steps.push(step);
        Ok(())
    }

    fn relation(&mut self) -> Option<Relation> {
        let Some(Token::Sign(sign)) = self.peek() else {
            return None;
        };
        let relation = match *sign {
            "==" => Relation::Equal,
            "!=" => Relation::Unequal,
            "<" => Relation::Less,
            "<=" => Relation::AtMost,
            ">" => Relation::Greater,
            ">=" => Relation::AtLeast,
            _ => return None,
        };
        self.at += 1;
        Some(relation)
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let literal = match self.peek() {
            Some(Token::Text(text)) => Literal::Text(text.as_str().into()),
            Some(Token::Number(number)) => Literal::Number(*number),
            Some(Token::Name(name)) if name == "true" || name == "false" => {
                Literal::Flag(name == "true")
            }
            Some(Token::Name(name)) if name == "duration" => return self.duration(),
            _ => return Ok(Operand::Attribute(self.attribute()?)),
        };
        self.at += 1;
        Ok(Operand::Literal(literal))
    }

    /// `duration('1.5s')`, in microseconds.
    fn duration(&mut self) -> Result<Operand, String> {
        self.at += 1;
        self.expect("(")?;
        let text = match self.next() {
            Some(Token::Text(text)) => text,
            _ => return Err("has a duration without a text".to_owned()),
        };
        self.expect(")")?;
        let (sign, length) = match text.strip_prefix('-') {
            Some(length) => (-1, length),
            None => (1, text.as_str()),
        };
        let micros = parse_duration(length).and_then(|it| i64::try_from(it.as_micros()).ok());
        let micros = micros.ok_or_else(|| format!("has {text:?}, which is no duration"))?;
        Ok(Operand::Literal(Literal::Number(sign * micros)))
    }

    fn attribute(&mut self) -> Result<Attribute, String> {
        let name = match self.next() {
            Some(Token::Name(name)) => name,
            Some(token) => return Err(format!("has {token} where an attribute should stand")),
            None => return Err("ends where an attribute should stand".to_owned()),
        };
        let mut key = None;
        if self.takes("[") {
            match self.next() {
                Some(Token::Text(text)) => key = Some(text),
                _ => return Err(format!("has {name} without the name of a header")),
            }
            self.expect("]")?;
        }
        let known = attribute(&name, key.as_deref());
        known.ok_or_else(|| format!("has the attribute {name}, which is not known here"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Flag,
}

fn kind_of(attribute: &Attribute) -> Kind {
    match attribute {
        Attribute::Status
        | Attribute::BytesReceived
        | Attribute::BytesSent
        | Attribute::Duration
        | Attribute::ClientPort
        | Attribute::ListenerPort => Kind::Number,
        Attribute::IsMutual => Kind::Flag,
        _ => Kind::Text,
    }
}

/// The relation with its sides changed.
fn turned(relation: Relation) -> Relation {
    match relation {
        Relation::Less => Relation::Greater,
        Relation::AtMost => Relation::AtLeast,
        Relation::Greater => Relation::Less,
        Relation::AtLeast => Relation::AtMost,
        same => same,
    }
}

#[cfg(test)]
mod tests;
