//! Objects through the service, as a client would see them but without HTTP.

mod bed;
mod model;
mod refusals;
