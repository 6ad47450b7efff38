//! What the gate lets through, what it refuses, and what it says a request may cost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::needless_pass_by_value,
    missing_docs,
    reason = "test code"
)]

mod bodies;
mod bounds;
mod captures;
mod cover;
mod edits;
mod headers;
mod json;
mod mutations;
mod oracle;
mod refusals;
mod routes;
mod schema;
mod seeds;
mod support;
