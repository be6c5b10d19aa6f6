//! The tests of translation: goldens for the rules, goldens for the fan-out, properties, and
//! counts of work at two sizes.

mod bounds;
mod bytes;
mod choosing;
mod claims;
mod config_map;
mod copies;
mod fanout;
mod fleet;
mod goldens;
mod issuers;
mod istio;
mod large;
mod on_demand;
mod owners;
mod postponed;
mod products;
mod proofs;
mod properties;
mod regexes;
mod render;
mod scale;
mod sharing;
mod slices;
mod tenants;
mod texts;
mod turns;
mod underscores;
mod universe;
mod views;
mod visits;
mod wildcards;
mod world;
