//! Inquiries.

use std::time::Duration;

use super::policy::header_field;
use super::*;
use crate::{AnswerMemory, Inquiry, is_token, variables};

message! {
    /// A service that is asked about each request before it goes on.
    Inquiry {
        1 upstream: resource_name("upstream");
        2 method: checked(string(), |it| check_method(it));
        /// Texts may have variables of nginx, such as $host.
        3 authority: checked(header_text("authority"), |it| check_authority(it));
        4 target: checked(header_text("target"), |it| check_target(it));
        /// X-Auth-Request-Redirect.
        5 redirect: checked(header_text("redirect"), |it| check_text(it));
        /// In place of the client's.
        6 fields: list_of(
            Inquiry::FIELDS_MAX, "number of fields", checked(each::<Header>(), check_field)
        );
        7 timeout as timeout_ms: positive("timeout");
        /// Names of fields of the answer.
        8 passed: list_of(Inquiry::FIELDS_MAX, "number of fields", header_name("header name"));
        /// The location of clients in place of 401; empty for none.
        9 signin: checked(header_text("location"), |it| check_text(it));
        10 always_sets_cookies: boolean();
        11 memory: boxed::<AnswerMemory>();
    }
}

message! {
    /// Answers that are remembered.
    AnswerMemory {
        1 key: checked(header_text("key"), |it| check_text(it));
        2 ages: list_of(AnswerMemory::AGES_MAX, "number of statuses", each::<AnswerAge>());
    }
}

message! {
    /// How long answers of a status are remembered.
    AnswerAge for (u16, Duration), pair {
        1 status: http_status(200..=599, "status"), of pair.0;
        2 age as age_ms: positive("age"), of pair.1;
    } => (status, age)
}

fn check_method(text: &str) -> Result<(), WireError> {
    match is_token(text) {
        true => Ok(()),
        false => Err(WireError::Invalid("method")),
    }
}

fn check_text(text: &str) -> Result<(), WireError> {
    match text.len() <= Inquiry::TEXT_BYTES_MAX && variables::are_known(text) {
        true => Ok(()),
        false => Err(WireError::Invalid("text with variables")),
    }
}

fn check_authority(text: &str) -> Result<(), WireError> {
    match text.is_empty() {
        true => Err(WireError::Missing("authority")),
        false => check_text(text),
    }
}

fn check_target(text: &str) -> Result<(), WireError> {
    check_text(text)?;
    let is_clean = text.bytes().all(|byte| byte > b' ');
    match is_clean && text.starts_with(['/', '$']) {
        true => Ok(()),
        false => Err(WireError::Invalid("target")),
    }
}

fn check_field(field: &(Box<str>, Box<str>)) -> Result<(), WireError> {
    header_field(field)?;
    check_text(&field.1)
}
