//! Changes of headers, which routes and their destinations share.

use super::reading::message;
use super::{Labels, Names};

message! {
    /// Changes to the headers of requests and responses.
    pub struct Headers {
        request: Option<HeaderOperations> = "request",
        response: Option<HeaderOperations> = "response",
    }
}

message! {
    /// Changes to the headers of one direction.
    #[derive(Eq)]
    pub struct HeaderOperations {
        /// Values that replace those that are there.
        set: Labels = "set",
        /// Values that join those that are there.
        add: Labels = "add",
        remove: Names = "remove",
    }
}
