//! What every connection of one worker shares.

use std::rc::Rc;
use std::sync::Arc;

use super::bucket::Buckets;
use super::count::Counts;
use super::dice::Dice;
use super::journal::Journal;
use super::limits::Limits;
use super::names::Names;
use super::proxy_header::Introductions;
use super::request_id::RequestIds;
use super::room::Room;
use super::share::Fairness;
use super::standard::Library;

/// The belongings of one worker.
pub struct Local {
    /// The limits, the same for all workers.
    pub limits: Arc<Limits>,
    /// What rate limits have left, the same for all workers.
    pub buckets: Arc<Buckets>,
    /// Which worker it is.
    pub number: usize,
    /// Where traffic is counted by its upstream, the same for all workers.
    pub library: Arc<Library>,
    /// Whether standard metrics are counted where nothing says otherwise.
    pub counts_all: bool,
    /// Where names are asked for, the same for all workers.
    pub names: Names,
    /// The worker's counts.
    pub counts: Arc<Counts>,
    /// What each domain holds of what the worker has, and how little memory is left.
    pub fairness: Fairness,
    /// The room that there is for connections.
    pub room: Rc<Room>,
    /// The worker's dice.
    pub dice: Dice,
    /// The access log, open or not.
    pub journal: Journal,
    /// Whether all requests are logged where nothing says otherwise.
    pub logs_all: bool,
    /// How many proxies in front of this one are trusted to tell the client's address.
    pub trusted_hops: usize,
    /// What becomes of the ids that clients send with requests.
    pub request_ids: RequestIds,
    /// Where clients are introduced by a balancer in front; none where nowhere.
    pub introductions: Option<Arc<Introductions>>,
}

/// A worker's belongings, held by its tasks.
pub type Shared = Rc<Local>;
