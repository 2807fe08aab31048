//! Handlers of images. An upload goes to disk as it comes.

use api::ImagePull;
use axum::body::Body as RawBody;
use axum::extract::State;
use axum::http::HeaderMap;
use model::Name;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, created, done, ok, versioned};
use super::upload;
use crate::cloud::{Caller, Shared};
use crate::ops::image;
use crate::ops::page::Query;

pub async fn import(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    headers: HeaderMap,
    body: RawBody,
) -> Reply {
    pairs.only(&["public"])?;
    let name: Name = name.parse()?;
    let limit = cloud.config.image_upload_max_bytes;
    upload::length_check(&headers, "image", limit)?;
    let public = pairs.flag("public")?;
    let mut body = upload::reader(body);
    let made = match image::import(&cloud, &caller, name, public, &mut body).await {
        Ok(made) => made,
        Err(error) => {
            upload::drain(body).await;
            return Err(error.into());
        }
    };
    created(made.version, &format!("/v1/images/{}", made.name), made)
}

pub async fn pull(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    body: Body<ImagePull>,
) -> Reply {
    let made = image::pull(&cloud, &caller, name.parse().map_err(super::reply::Failure)?, body.value).await?;
    created(made.version, &format!("/v1/images/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(image::list(&cloud, &caller, &Query::parse(&pairs.0, image::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = image::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    image::delete(&cloud, &caller, &name, seen).await?;
    done()
}
