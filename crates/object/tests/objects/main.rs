//! Objects through the service, as a client would see them but without HTTP.

#![allow(clippy::unwrap_used)]

mod bed;
mod model;
mod parts;
mod refusals;
