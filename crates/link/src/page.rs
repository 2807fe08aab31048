//! A desired set on its way to a child, in a page small enough to be sent.

use bytes::Bytes;
use model::exchange::Revision;
use model::{ChildId, Desired, Error, ErrorKind, Result};
use serde::Serialize;

use crate::limits::PAGE_CUT_FIRST;
use crate::parent::ParentHandler;
use crate::wire;

/// Writes the message that carries `desired`. What is larger than `max` is asked for again in smaller pages until
/// one fits; an entry that is too large by itself is named.
pub(crate) async fn fit<T: Serialize + Sync>(
    handler: &dyn ParentHandler,
    child: &ChildId,
    have: Option<Revision>,
    mut desired: Desired,
    max: usize,
    message: impl Fn(Desired) -> T,
) -> Result<Bytes> {
    let mut page = PAGE_CUT_FIRST;
    loop {
        let entries = desired.upserts.len() + desired.removes.len();
        let first = desired.upserts.first().map(|entry| entry.id.clone());
        match wire::encode_large(&message(desired), max).await {
            Err(error) if error.kind == ErrorKind::TooLarge && entries > 1 && page > 0 => {
                tracing::debug!(%child, entries, page, "a page is cut smaller");
                desired = handler.desired_page(child, have, page).await?;
                page /= 2;
            }
            Err(error) if error.kind == ErrorKind::TooLarge => {
                let what = first.map_or_else(|| "an entry".to_owned(), |id| format!("instance {id}"));
                let text = format!("{what} is too large to be sent: {max} bytes at most");
                return Err(Error::new(ErrorKind::TooLarge, text).because(error));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::future::BoxFuture;
    use model::exchange::{Ack, Run};
    use model::{Assignment, Digest, ImageManifest, InstanceId, InstanceSpec, Observed, Pulse};

    use super::*;
    use crate::parent::BlobSource;

    /// Entries that cannot be packed, of so many bytes each.
    struct Heavy(Vec<usize>);

    impl Heavy {
        fn entry(&self, n: usize) -> Assignment {
            let mut spec = InstanceSpec::new("busybox");
            let noise: Vec<u8> = (0..self.0[n] / 2).map(|_| rand::random()).collect();
            spec.env.insert("NOISE".to_owned(), hex::encode(noise));
            Assignment {
                id: InstanceId::from_random(n as u128),
                tenant: model::TenantId::from_random(1),
                name: "web".parse().unwrap(),
                generation: model::Generation::default(),
                run: Run::Running,
                restart_count: 0,
                spec: spec.into(),
                image: ImageManifest {
                    id: model::ImageId::from_random(1),
                    platform: model::Platform { arch: model::Arch::Amd64 },
                    layers: Vec::new(),
                    entrypoint: Vec::new(),
                    command: Vec::new(),
                    env: Default::default(),
                    user: None,
                    workdir: None,
                }
                .into(),
                group: None,
            }
        }

        fn page(&self, bytes: usize) -> Desired {
            let (mut sum, mut upserts) = (0, Vec::new());
            for n in 0..self.0.len() {
                sum += self.0[n];
                if sum > bytes && n > 0 {
                    break;
                }
                upserts.push(self.entry(n));
            }
            let more = upserts.len() < self.0.len();
            let at = Revision { epoch: 1, rev: upserts.len() as u64 };
            Desired { base: None, at, upserts, removes: Vec::new(), more, upto: more.then_some(at.rev) }
        }
    }

    impl ParentHandler for Heavy {
        fn observed(&self, _: &ChildId, _: Observed) -> BoxFuture<'_, Result<Ack>> {
            unreachable!()
        }
        fn desired(&self, _: &ChildId, _: Option<Revision>) -> BoxFuture<'_, Result<Desired>> {
            Box::pin(async { Ok(self.page(usize::MAX)) })
        }
        fn desired_page(
            &self,
            _: &ChildId,
            _: Option<Revision>,
            bytes: usize,
        ) -> BoxFuture<'_, Result<Desired>> {
            Box::pin(async move { Ok(self.page(bytes)) })
        }
        fn link_state(&self, _: &ChildId, _: bool) {}
        fn heard(&self, _: &ChildId, _: Option<&Pulse>) {}
        fn blob(&self, _: &ChildId, _: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
            unreachable!()
        }
    }

    async fn fitted(heavy: &Heavy, max: usize) -> Result<Desired> {
        let child = ChildId::from("n-1");
        let desired = heavy.desired(&child, None).await?;
        let body = fit(heavy, &child, None, desired, max, |desired| desired).await?;
        assert!(body.len() <= max);
        wire::decode(&body, crate::limits::BODY_MAX)
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_cut_until_it_fits() {
        let whole = fitted(&Heavy(vec![1_000; 20]), 1 << 20).await.unwrap();
        assert_eq!((whole.upserts.len(), whole.more), (20, false), "one that fits stays whole");
        let cut = fitted(&Heavy(vec![100_000; 20]), 200_000).await.unwrap();
        assert!(cut.more && (1..20).contains(&cut.upserts.len()), "{}", cut.upserts.len());
        let one = fitted(&Heavy(vec![300_000, 300_000]), 200_000).await.unwrap();
        assert_eq!((one.upserts.len(), one.more), (1, true), "packed it is smaller than it says");
    }

    #[tokio::test]
    async fn an_entry_that_fits_nowhere_is_named() {
        let error = fitted(&Heavy(vec![900_000, 10]), 100_000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert!(error.message.contains(InstanceId::from_random(0).as_str()), "{error}");
    }
}
