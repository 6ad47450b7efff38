//! What the gate lets through, what it refuses, and what it says a request may cost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

mod bodies;
mod bounds;
mod captures;
mod edits;
mod headers;
mod json;
mod mutations;
mod refusals;
mod routes;
mod schema;
mod support;
